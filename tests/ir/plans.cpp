#include "tests/ir/plans.hpp"

#include <algorithm>
#include <utility>

#include "ir/builder.hpp"
#include "ir/verify.hpp"

namespace fem::ir::testing {
namespace {

constexpr int kBlocksPerStage = 1;

int stages_of(const PlanShape& shape) { return shape.placement == Placement::Loop ? shape.pp : 2 * shape.pp; }

// Stages that a microbatch passes.
int depth_of(const PlanShape& shape) { return shape.placement == Placement::V ? 2 * shape.pp : shape.pp; }

bool has_replicas(const PlanShape& shape) { return shape.placement == Placement::Bidirectional; }

int rank_of(const PlanShape& shape, int stage) {
  return stage < shape.pp ? stage : 2 * shape.pp - 1 - stage;
}

Settings settings_of(const PlanShape& shape) {
  Settings s;
  s.model.layers = kBlocksPerStage * depth_of(shape);
  s.model.hidden = 8;
  s.model.intermediate = 16;
  s.model.heads = 2;
  s.model.vocab = 16;
  s.model.tied = shape.tied;
  s.parallel.pp = shape.pp;
  s.batch.global = shape.microbatches;
  s.batch.seq_len = 4;
  return s;
}

std::vector<Stage> stages(const PlanShape& shape) {
  const int n = depth_of(shape);
  std::vector<Stage> out;
  int unit = 0;
  for (int s = 0; s < stages_of(shape); ++s) {
    const int part = s % n;
    if (part == 0) unit = 0;
    Stage stage;
    stage.pp = static_cast<std::int16_t>(rank_of(shape, s));
    stage.prev = static_cast<std::int16_t>(part > 0 ? s - 1 : -1);
    stage.next = static_cast<std::int16_t>(part + 1 < n ? s + 1 : -1);
    stage.replica_of = static_cast<std::int16_t>(s >= n ? part : -1);
    stage.first_unit = static_cast<std::int16_t>(unit);
    stage.units = static_cast<std::int16_t>(kBlocksPerStage + (part == 0) + (part == n - 1));
    unit += stage.units;
    out.push_back(stage);
  }
  return out;
}

// The microbatches that pass a stage: [first, last). With two directions the first half goes down.
std::pair<int, int> microbatches_of(const PlanShape& shape, int stage) {
  const int m = shape.microbatches, down = (m + 1) / 2;
  if (!has_replicas(shape)) return {0, m};
  return stage < shape.pp ? std::pair(0, down) : std::pair(down, m);
}

// Forwards and backwards of one rank. With two stages on a rank all microbatches pass one stage before the other.
std::vector<Action> compute(const PlanShape& shape, int rank, bool forward_only) {
  const int m = shape.microbatches;
  std::vector<int> mine;
  for (int s = 0; s < stages_of(shape); ++s) {
    if (rank_of(shape, s) == rank) mine.push_back(s);
  }
  std::vector<Action> out;
  const auto backward_of = [&](int s, int i) {
    out.push_back(shape.order == Order::Split ? backward_input(s, i) : backward(s, i));
  };
  const bool in_turn = shape.order != Order::AllForwardThenBackward && mine.size() == 1 && !forward_only;
  const int ahead = in_turn ? std::min(shape.pp - 1 - rank, m) : m;
  for (const int s : mine) {
    const auto [first, last] = microbatches_of(shape, s);
    for (int i = first; i < std::min(last, first + ahead); ++i) out.push_back(forward(s, i));
  }
  if (forward_only) return out;
  for (auto s = mine.rbegin(); s != mine.rend(); ++s) {
    const auto [first, last] = microbatches_of(shape, *s);
    for (int i = first; i < last; ++i) {
      if (in_turn && i + ahead < last) out.push_back(forward(*s, i + ahead));
      backward_of(*s, in_turn ? i : first + last - 1 - i);
    }
  }
  for (const int s : mine) {
    const auto [first, last] = microbatches_of(shape, s);
    for (int i = first; shape.order == Order::Split && i < last; ++i) out.push_back(backward_weight(s, i));
  }
  return out;
}

void append_update(const PlanShape& shape, int rank, std::vector<Action>& out) {
  std::vector<int> mine;
  for (int s = 0; s < stages_of(shape); ++s) {
    if (rank_of(shape, s) == rank) mine.push_back(s);
  }
  out.push_back(reduce_loss());
  const int n = depth_of(shape);
  for (int part = 0; has_replicas(shape) && part < n; ++part) {
    for (const int s : mine) {
      if (s % n == part) out.push_back(reduce_replica_grad(s));
    }
  }
  for (const int s : mine) {
    if (shape.tied && s % n == 0) out.push_back(reduce_tied_grad(s));
    if (shape.tied && s % n == n - 1) out.push_back(reduce_tied_grad(s));
  }
  for (const int s : mine) out.push_back(all_reduce(s));
  out.push_back(grad_norm());
  for (const int s : mine) out.push_back(clip_grad(s));
  for (const int s : mine) out.push_back(optimizer_step(s));
}

Program program(const PlanShape& shape, bool forward_only) {
  Program p;
  p.name = forward_only ? "eval" : "train";
  p.forward_only = forward_only;
  p.microbatches = shape.microbatches;
  p.ranks.resize(static_cast<std::size_t>(shape.pp));
  for (int r = 0; r < shape.pp; ++r) {
    std::vector<Action>& out = p.ranks[static_cast<std::size_t>(r)].actions;
    for (int s = 0; s < stages_of(shape) && !forward_only; ++s) {
      if (rank_of(shape, s) == r) out.push_back(zero_grad(s));
    }
    const std::vector<Action> body = compute(shape, r, forward_only);
    out.insert(out.end(), body.begin(), body.end());
    if (forward_only) {
      out.push_back(reduce_loss());
    } else {
      append_update(shape, r, out);
    }
  }
  return p;
}

bool is_backward(const Action& a) { return a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardInput; }

// Runs the world one action at a time; each tensor that crosses ranks is sent and received as soon as it exists.
void insert_messages(const Plan& plan, Program& program) {
  const std::vector<RankProgram> before = std::move(program.ranks);
  program.ranks.assign(before.size(), {});
  const auto m = static_cast<std::size_t>(program.microbatches);
  std::vector<bool> forward_done(plan.stages.size() * m), backward_done(plan.stages.size() * m);
  std::vector<std::size_t> at(before.size());
  const auto stage = [&](int s) -> const Stage& { return plan.stages[static_cast<std::size_t>(s)]; };
  const auto index = [&](int s, const Action& a) {
    return static_cast<std::size_t>(s) * m + static_cast<std::size_t>(a.microbatch);
  };
  const auto out = [&](int rank) -> std::vector<Action>& {
    return program.ranks[static_cast<std::size_t>(rank)].actions;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < before.size(); ++r) {
      if (at[r] == before[r].actions.size()) continue;
      const Action& a = before[r].actions[at[r]];
      const bool is_forward = a.kind == ActionKind::Forward;
      if (is_forward && stage(a.stage).prev >= 0 && !forward_done[index(stage(a.stage).prev, a)]) continue;
      if (is_backward(a) && stage(a.stage).next >= 0 && !backward_done[index(stage(a.stage).next, a)]) continue;
      moved = true;
      ++at[r];
      const int here = static_cast<int>(r);
      out(here).push_back(a);
      if (!is_forward && !is_backward(a)) continue;
      (is_forward ? forward_done : backward_done)[index(a.stage, a)] = true;
      const int other = is_forward ? stage(a.stage).next : stage(a.stage).prev;
      if (other < 0 || stage(other).pp == here) continue;
      const int there = stage(other).pp;
      out(here).push_back(is_forward ? send_forward(a.stage, a.microbatch, there)
                                     : send_backward(a.stage, a.microbatch, there));
      out(there).push_back(is_forward ? recv_forward(other, a.microbatch, here)
                                      : recv_backward(other, a.microbatch, here));
    }
  }
}

// Joins neighbouring messages, from the top, wherever the plan then still verifies.
void join_messages(Plan& plan) {
  for (Program& program : plan.programs) {
    for (RankProgram& rank : program.ranks) {
      for (std::size_t i = 0; i + 1 < rank.actions.size(); ++i) {
        if (!is_p2p(rank.actions[i].kind) || !is_p2p(rank.actions[i + 1].kind)) continue;
        rank.actions[i].flags |= Action::kJoined;
        DiagnosticSink sink;
        if (!verify(plan, sink)) rank.actions[i].flags &= static_cast<std::uint8_t>(~Action::kJoined);
      }
    }
  }
}

}  // namespace

std::string name(const PlanShape& shape) {
  const char* order = shape.order == Order::Split                    ? "split"
                      : shape.order == Order::AllForwardThenBackward ? "gpipe"
                                                                     : "1f1b";
  const char* placement = shape.placement == Placement::V ? "_v" : has_replicas(shape) ? "_two_ways" : "";
  return std::string(order) + "_pp" + std::to_string(shape.pp) + "_m" + std::to_string(shape.microbatches) +
         placement + (shape.tied ? "_tied" : "") + (shape.batches ? "_batches" : "");
}

Plan stage_plan(const PlanShape& shape) {
  Plan plan;
  plan.settings = settings_of(shape);
  plan.stages = stages(shape);
  plan.programs = {program(shape, false), program(shape, true)};
  return plan;
}

Plan communication_plan(const PlanShape& shape) {
  Plan plan = stage_plan(shape);
  plan.level = Level::Communication;
  for (Program& p : plan.programs) insert_messages(plan, p);
  if (shape.batches) join_messages(plan);
  return plan;
}

std::vector<PlanShape> all_shapes() {
  std::vector<PlanShape> shapes;
  for (const int pp : {1, 2, 3, 4}) {
    for (const int m : {1, 2, 4, 7}) {
      for (const Order order : {Order::AllForwardThenBackward, Order::OneForwardOneBackward, Order::Split}) {
        for (const Placement placement : {Placement::Loop, Placement::V, Placement::Bidirectional}) {
          shapes.push_back({pp, m, order, placement, (pp + m) % 2 == 0, true});
        }
      }
    }
  }
  return shapes;
}

}  // namespace fem::ir::testing
