#include "orders.hpp"

#include <algorithm>
#include <deque>
#include <random>
#include <sstream>

#include "ir/builder.hpp"

namespace fem::test {

using ir::Action;
using ir::ActionKind;

std::vector<ir::Stage> stages(Placement placement, int p, int chunks) {
  const bool two_ways = placement == Placement::Bidirectional;
  const int depth = two_ways ? p : p * chunks;  // stages that one microbatch passes
  std::vector<ir::Stage> result;
  for (int replica = 0; replica < (two_ways ? 2 : 1); ++replica)
    for (int s = 0; s < depth; ++s) {
      ir::Stage stage;
      int pp = s % p;
      if (placement == Placement::V && s >= p) pp = 2 * p - 1 - s;
      if (replica == 1) pp = p - 1 - s;
      stage.pp = static_cast<std::int16_t>(pp);
      stage.prev = static_cast<std::int16_t>(s > 0 ? replica * p + s - 1 : -1);
      stage.next = static_cast<std::int16_t>(s + 1 < depth ? replica * p + s + 1 : -1);
      stage.replica_of = static_cast<std::int16_t>(replica ? s : -1);
      // One block a stage; the embedding before the first and the head after the last.
      stage.first_unit = static_cast<std::int16_t>(s ? s + 1 : 0);
      stage.units = static_cast<std::int16_t>(1 + (s == 0) + (s + 1 == depth));
      result.push_back(stage);
    }
  return result;
}

ir::Plan make_plan(Placement placement, int p, int chunks, int m, Order order, bool forward_only) {
  ir::Plan plan;
  plan.stages = stages(placement, p, chunks);
  plan.settings.model.layers = placement == Placement::Bidirectional ? p : p * chunks;
  plan.settings.model.hidden = 16;
  plan.settings.model.intermediate = 32;
  plan.settings.model.heads = 2;
  plan.settings.model.vocab = 64;
  plan.settings.parallel.pp = p;
  plan.settings.schedule.chunks = chunks;
  plan.settings.batch.global = m;
  plan.settings.batch.seq_len = 8;
  ir::Program program;
  program.name = forward_only ? "eval" : "train";
  program.forward_only = forward_only;
  program.microbatches = m;
  for (int r = 0; r < p; ++r) {
    std::vector<int> own;
    for (int s = 0; s < static_cast<int>(plan.stages.size()); ++s)
      if (plan.stages[static_cast<std::size_t>(s)].pp == r) own.push_back(s);
    std::vector<Action> actions;
    if (!forward_only)
      for (int s : own) actions.push_back(ir::zero_grad(s));
    const std::vector<Action>& middle = order[static_cast<std::size_t>(r)];
    actions.insert(actions.end(), middle.begin(), middle.end());
    actions.push_back(ir::reduce_loss());
    if (!forward_only) {
      for (int part = 0; placement == Placement::Bidirectional && part < p; ++part)
        for (int s : own)
          if (s % p == part) actions.push_back(ir::reduce_replica_grad(s));
      for (int s : own) actions.push_back(ir::all_reduce(s));
      actions.push_back(ir::grad_norm());
      for (int s : own) actions.push_back(ir::clip_grad(s));
      for (int s : own) actions.push_back(ir::optimizer_step(s));
    }
    program.ranks.push_back({std::move(actions), {}});
  }
  plan.programs.push_back(std::move(program));
  return plan;
}

Order gpipe(int p, int m) {
  Order order(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& out = order[static_cast<std::size_t>(r)];
    for (int i = 0; i < m; ++i) out.push_back(ir::forward(r, i));
    for (int i = m - 1; i >= 0; --i) out.push_back(ir::backward(r, i));
  }
  return order;
}

Order one_f_one_b(int p, int m) {
  Order order(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& out = order[static_cast<std::size_t>(r)];
    const int warm_up = std::min(p - 1 - r, m);
    for (int i = 0; i < warm_up; ++i) out.push_back(ir::forward(r, i));
    for (int i = 0; i < m; ++i) {
      if (warm_up + i < m) out.push_back(ir::forward(r, warm_up + i));
      out.push_back(ir::backward(r, i));
    }
  }
  return order;
}

Order looped_bfs(int p, int m, int v) {
  Order order(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& out = order[static_cast<std::size_t>(r)];
    for (int c = 0; c < v; ++c)
      for (int i = 0; i < m; ++i) out.push_back(ir::forward(c * p + r, i));
    for (int c = v - 1; c >= 0; --c)
      for (int i = m - 1; i >= 0; --i) out.push_back(ir::backward(c * p + r, i));
  }
  return order;
}

Order interleaved(int p, int m, int v, int n, bool split) {
  std::vector<std::pair<int, int>> table;  // chunk, microbatch
  for (int group = 0; group < m; group += n)
    for (int c = 0; c < v; ++c)
      for (int i = group; i < std::min(group + n, m); ++i) table.push_back({c, i});
  const int total = m * v;
  Order order(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& out = order[static_cast<std::size_t>(r)];
    auto forward = [&](int k) {
      out.push_back(
          ir::forward(table[static_cast<std::size_t>(k)].first * p + r, table[static_cast<std::size_t>(k)].second));
    };
    auto operands = [&](int k) {
      const auto [c, i] = table[static_cast<std::size_t>(k)];
      return std::pair((v - 1 - c) * p + r, i);
    };
    const int warm_up = std::min(2 * (p - 1 - r) + (v - 1) * n, total);
    for (int k = 0; k < warm_up; ++k) forward(k);
    for (int k = 0; k < total; ++k) {
      if (warm_up + k < total) forward(warm_up + k);
      const auto [s, i] = operands(k);
      out.push_back(split ? ir::backward_input(s, i) : ir::backward(s, i));
      if (split && k >= r) out.push_back(ir::backward_weight(operands(k - r).first, operands(k - r).second));
    }
    if (split)
      for (int k = std::max(total - r, 0); k < total; ++k)
        out.push_back(ir::backward_weight(operands(k).first, operands(k).second));
  }
  return order;
}

Order zb_h(int p, int m, int h) {
  Order order(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& out = order[static_cast<std::size_t>(r)];
    const int warm_up = std::min(h * (p - 1 - r), m), lag = h * r;
    for (int i = 0; i < warm_up; ++i) out.push_back(ir::forward(r, i));
    for (int i = 0; i < m; ++i) {
      if (warm_up + i < m) out.push_back(ir::forward(r, warm_up + i));
      out.push_back(ir::backward_input(r, i));
      if (i >= lag) out.push_back(ir::backward_weight(r, i - lag));
    }
    for (int i = std::max(m - lag, 0); i < m; ++i) out.push_back(ir::backward_weight(r, i));
  }
  return order;
}

Order zb_v_2_4() {
  return {
      read_order("0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3"),
      read_order("1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3")};
}

namespace {

// The eight phases, for one rank. stage[d]: its stage in direction (or chunk) d; first[d]: that direction's first
// microbatch.
class DualPipePhases {
 public:
  DualPipePhases(std::pair<int, int> stage, std::pair<int, int> first)
      : stage_{stage.first, stage.second}, f_{first.first, first.second}, b_{first.first, first.second} {}

  std::vector<Action> run(int rounds, int h, int main, bool unfuse_first) {
    for (int i = 0; i < 2 * (rounds - h - 1); ++i) forward(0);
    for (int i = 0; i < h + 1; ++i) forward(0), forward(1);
    for (int i = 0; i < rounds - h - 1; ++i) backward(1, true), weight(), forward(1);
    for (int i = 0; i < main; ++i) {
      pair(0, 1, i == 0 && unfuse_first);
      pair(1, 0, false);
    }
    for (int i = 0; i < rounds - h - 1; ++i) backward(1, false), pair(1, 0, false);
    bool split = false;
    for (int i = 0; i < h + 1; ++i) {
      if (i == (h + 1) / 2 && h % 2 == 1) split = true;
      backward(1, split);
      if (i == (h + 1) / 2 && h % 2 == 0) split = true;
      backward(0, split);
    }
    for (int i = 0; i < rounds - h - 1; ++i) weight(), backward(0, true);
    for (int i = 0; i < h + 1; ++i) weight();
    return std::move(out_);
  }

 private:
  void forward(int d) { out_.push_back(ir::forward(stage_[d], f_[d]++)); }
  void backward(int d, bool split) {
    if (split) weights_.push_back(ir::backward_weight(stage_[d], b_[d]));
    out_.push_back(split ? ir::backward_input(stage_[d], b_[d]) : ir::backward(stage_[d], b_[d]));
    ++b_[d];
  }
  void weight() {
    out_.push_back(weights_.front());
    weights_.pop_front();
  }
  void pair(int f, int b, bool unfused) {
    forward(f);
    if (!unfused) out_.back().flags |= Action::kJoined;
    backward(b, false);
  }

  int stage_[2], f_[2], b_[2];
  std::deque<Action> weights_;
  std::vector<Action> out_;
};

}  // namespace

Order dualpipe(int p, int m) {
  Order order;
  for (int r = 0; r < p; ++r) {
    const int h = std::min(r, p - 1 - r);
    const std::pair<int, int> stage{r, p + (p - 1 - r)}, first{0, m / 2};
    const bool swap = r >= p / 2;
    DualPipePhases phases(swap ? std::pair(stage.second, stage.first) : stage,
                          swap ? std::pair(first.second, first.first) : first);
    order.push_back(phases.run(p / 2, h, m / 2 - p + h + 1, h == p / 2 - 1));
  }
  return order;
}

Order dualpipe_v(int p, int m) {
  Order order;
  for (int r = 0; r < p; ++r)
    order.push_back(DualPipePhases({r, 2 * p - 1 - r}, {0, 0}).run(p, r, m - 2 * p + r + 1, r == p - 1));
  return order;
}

Order random_order(std::uint32_t seed, Placement placement, int p, int chunks, int m, bool split, bool pairs) {
  const std::vector<ir::Stage> all = stages(placement, p, chunks);
  std::mt19937 random(seed);
  auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  // Ready operations by rank. What an operation makes ready is added when it has run.
  std::vector<std::vector<Action>> ready(static_cast<std::size_t>(p));
  auto offer = [&](const Action& a) {
    ready[static_cast<std::size_t>(all[static_cast<std::size_t>(a.stage)].pp)].push_back(a);
  };
  auto offer_backward = [&](int s, int i) { offer(split ? ir::backward_input(s, i) : ir::backward(s, i)); };
  for (int s = 0; s < static_cast<int>(all.size()); ++s) {
    if (all[static_cast<std::size_t>(s)].prev >= 0) continue;
    // With two replicas each takes half of the microbatches.
    const bool two_ways = placement == Placement::Bidirectional;
    const int from = s ? m / 2 : 0, to = two_ways && !s ? m / 2 : m;
    for (int i = from; i < to; ++i) offer(ir::forward(s, i));
  }
  Order order(static_cast<std::size_t>(p));
  auto ran = [&](const Action& a) {
    const ir::Stage& stage = all[static_cast<std::size_t>(a.stage)];
    if (a.kind == ActionKind::Forward && stage.next >= 0) offer(ir::forward(stage.next, a.microbatch));
    if (a.kind == ActionKind::Forward && stage.next < 0) offer_backward(a.stage, a.microbatch);
    if ((a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardInput) && stage.prev >= 0)
      offer_backward(stage.prev, a.microbatch);
    if (a.kind == ActionKind::BackwardInput) offer(ir::backward_weight(a.stage, a.microbatch));
  };
  while (true) {
    std::vector<std::size_t> able;
    for (std::size_t r = 0; r < ready.size(); ++r)
      if (!ready[r].empty()) able.push_back(r);
    if (able.empty()) return order;
    const std::size_t r = able[below(able.size())];
    std::vector<Action>& mine = ready[r];
    const std::size_t k = below(mine.size());
    Action first = mine[k];
    mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(k));
    const auto partner = std::ranges::find_if(mine, [&](const Action& a) { return a.kind == ActionKind::Backward; });
    if (pairs && first.kind == ActionKind::Forward && partner != mine.end() && below(2)) {
      const Action second = *partner;
      mine.erase(partner);
      first.flags |= Action::kJoined;
      order[r].push_back(first);
      order[r].push_back(second);
      ran(first);
      ran(second);
    } else {
      order[r].push_back(first);
      ran(first);
    }
  }
}

Order forwards_only(Order order) {
  for (auto& rank : order) {
    std::erase_if(rank, [](const Action& a) { return a.kind != ActionKind::Forward; });
    for (Action& a : rank) a.flags = 0;
  }
  return order;
}

namespace {

char letter(ActionKind kind) {
  if (kind == ActionKind::Forward) return 'F';
  if (kind == ActionKind::Backward) return 'B';
  if (kind == ActionKind::BackwardInput) return 'I';
  return kind == ActionKind::BackwardWeight ? 'W' : '\0';
}

}  // namespace

std::string compute_text(const std::vector<Action>& actions) {
  std::string text;
  bool in_pair = false;
  for (const Action& a : actions) {
    if (!letter(a.kind)) continue;
    if (!text.empty() && !in_pair) text += ' ';
    if (in_pair) text += ';';
    if (a.joined()) text += '(';
    text += std::to_string(a.stage) + letter(a.kind) + std::to_string(a.microbatch);
    if (in_pair) text += ')';
    in_pair = a.joined();
  }
  return text;
}

std::vector<Action> read_order(const std::string& text) {
  std::vector<Action> actions;
  std::istringstream in(text);
  int stage = 0, microbatch = 0;
  for (char kind; in >> stage >> kind >> microbatch;)
    actions.push_back(kind == 'F'   ? ir::forward(stage, microbatch)
                      : kind == 'B' ? ir::backward(stage, microbatch)
                      : kind == 'I' ? ir::backward_input(stage, microbatch)
                                    : ir::backward_weight(stage, microbatch));
  return actions;
}

}  // namespace fem::test
