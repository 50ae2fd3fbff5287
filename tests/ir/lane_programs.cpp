#include "tests/ir/lane_programs.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "ir/text.hpp"

namespace fem::ir::testing {
namespace {

struct Touched {
  std::set<std::string> read, changed;
};

struct Batch {
  std::size_t action = 0, size = 1;
  Lane lane = Lane::Compute;
  std::uint32_t number = 0;  // in its lane, from 1
};

std::vector<Batch> batches(const RankProgram& rank) {
  std::vector<Batch> out;
  std::array<std::uint32_t, kLanes> count{};
  for (std::size_t i = 0; i < rank.actions.size();) {
    const std::size_t n = batch_size(rank.actions, i);
    const Lane lane = rank.actions[i].lane;
    out.push_back({i, n, lane, ++count[static_cast<std::size_t>(lane)]});
    i += n;
  }
  return out;
}

// The name of a resource as it lies on the rank; none where it does not exist.
std::optional<std::string> resource(const Plan& plan, bool forward_only, ResourceKind kind, int s, int m) {
  using enum ResourceKind;
  const auto of = [&](const char* name, int stage) {
    return std::string(name) + " s" + std::to_string(stage) + " m" + std::to_string(m);
  };
  const auto at = [&](int stage) -> const Stage& { return plan.stages[static_cast<std::size_t>(stage)]; };
  const bool comes_from_here = s >= 0 && at(s).prev >= 0 && at(at(s).prev).pp == at(s).pp;
  switch (kind) {
    case Input:
      if (at(s).prev < 0) return std::nullopt;
      return comes_from_here ? of("output", at(s).prev) : of("input", s);
    case Output: return at(s).next < 0 ? std::nullopt : std::optional(of("output", s));
    case GradInput:
      if (at(s).prev < 0 || forward_only) return std::nullopt;
      return comes_from_here ? of("gradient", at(s).prev) : of("gradient in", s);
    case GradOutput:
      if (at(s).next < 0 || forward_only) return std::nullopt;
      return of("gradient", s);
    case SavedRest:
    case Saved: return forward_only ? std::nullopt : std::optional(of("saved", s));
    case SavedInput:
      if (at(s).prev < 0 || forward_only) return std::nullopt;
      return of("saved input", s);
    case WeightWork: return of("work", s);
    case HostCopy: return of("host", s);
    case Params: return "params s" + std::to_string(s);
    case Shard: return (plan.settings.parallel.zero == 0 ? "params s" : "shard s") + std::to_string(s);
    case Grads: return "grads s" + std::to_string(s);
    case ReducedGrads: return "reduced s" + std::to_string(s);
    case Optimizer: return "optimizer s" + std::to_string(s);
    case HostOptimizer: return "host optimizer s" + std::to_string(s);
    case Loss:
      if (s >= 0 && at(s).next >= 0 && at(s).prev >= 0) return std::nullopt;
      return "loss";
    case Metrics: return "metrics";
    case Norm: return "norm";
  }
  return std::nullopt;
}

// Stages of the rank whose accumulators a reduction of copies adds: the two replicas, or all copies of the embedding.
std::vector<int> copies(const Plan& plan, std::size_t rank, const Action& a) {
  std::vector<int> out;
  for (int s = 0; s < static_cast<int>(plan.stages.size()); ++s) {
    const Stage &stage = plan.stages[static_cast<std::size_t>(s)],
                &named = plan.stages[static_cast<std::size_t>(a.stage)];
    if (stage.pp != static_cast<int>(rank)) continue;
    const bool tied = a.kind == ActionKind::ReduceTiedGrad && (stage.prev < 0 || stage.next < 0);
    if (s == a.stage || tied || stage.first_unit == named.first_unit) out.push_back(s);
  }
  return out;
}

Touched touched(const Plan& plan, const Program& program, std::size_t rank, const Batch& batch) {
  Touched out;
  for (std::size_t i = batch.action; i < batch.action + batch.size; ++i) {
    const Action& a = program.ranks[rank].actions[i];
    const ActionInfo& row = info(a.kind);
    for (int k = 0; k < kResourceKinds; ++k) {
      const auto kind = static_cast<ResourceKind>(k);
      const bool changes = row.writes.has(kind) || row.kills.has(kind);
      if (!changes && !row.reads.has(kind)) continue;
      const bool of_rank =
          kind == ResourceKind::Loss || kind == ResourceKind::Metrics || kind == ResourceKind::Norm;
      std::vector<int> stages{a.stage};
      if (a.stage < 0 && !of_rank) {
        stages.clear();
        for (int s = 0; s < static_cast<int>(plan.stages.size()); ++s) {
          if (plan.stages[static_cast<std::size_t>(s)].pp == static_cast<int>(rank)) stages.push_back(s);
        }
      }
      if (a.kind == ActionKind::ReduceTiedGrad || a.kind == ActionKind::ReduceReplicaGrad) {
        stages = copies(plan, rank, a);
      }
      for (const int s : stages) {
        const auto name = resource(plan, program.forward_only, kind, s, a.microbatch);
        if (name) (changes ? out.changed : out.read).insert(*name);
      }
    }
  }
  return out;
}

bool meet(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& name) { return b.contains(name); });
}

bool conflict(const Touched& a, const Touched& b) {
  return meet(a.changed, b.changed) || meet(a.changed, b.read) || meet(a.read, b.changed);
}

// The batches that must finish before a batch starts: of its lane the one before it, and those that it waits for.
std::vector<std::vector<std::size_t>> predecessors(const RankProgram& rank, const std::vector<Batch>& all) {
  std::map<std::pair<Lane, std::uint32_t>, std::size_t> by_number;
  for (std::size_t b = 0; b < all.size(); ++b) by_number[{all[b].lane, all[b].number}] = b;
  std::vector<std::vector<std::size_t>> out(all.size());
  for (std::size_t b = 0; b < all.size(); ++b) {
    if (all[b].number > 1) out[b].push_back(by_number.at({all[b].lane, all[b].number - 1}));
    for (const Wait& wait : rank.waits) {
      if (wait.action == all[b].action) out[b].push_back(by_number.at({wait.lane, wait.count}));
    }
  }
  return out;
}

// [b][a]: a finishes before b starts.
std::vector<std::vector<bool>> order(const RankProgram& rank, const std::vector<Batch>& all) {
  const auto before = predecessors(rank, all);
  std::vector<std::vector<bool>> out(all.size(), std::vector<bool>(all.size()));
  for (std::size_t b = 0; b < all.size(); ++b) {
    for (const std::size_t p : before[b]) {
      out[b][p] = true;
      for (std::size_t a = 0; a < p; ++a) out[b][a] = out[b][a] || out[p][a];
    }
  }
  return out;
}

void add_waits(const Plan& plan, const Program& program, std::size_t r, RankProgram& rank) {
  const std::vector<Batch> all = batches(rank);
  std::vector<Touched> uses;
  for (const Batch& batch : all) uses.push_back(touched(plan, program, r, batch));
  for (std::size_t b = 0; b < all.size(); ++b) {
    for (std::size_t a = b; a-- > 0;) {
      if (all[a].lane == all[b].lane || !conflict(uses[a], uses[b]) || order(rank, all)[b][a]) continue;
      rank.waits.push_back({static_cast<std::uint32_t>(all[b].action), all[a].lane, all[a].number});
    }
  }
  set_labels(rank);
}

}  // namespace

void set_labels(RankProgram& rank) {
  for (Action& a : rank.actions) a.label = 0;
  for (const Batch& batch : batches(rank)) {
    for (const Wait& wait : rank.waits) {
      if (wait.lane == batch.lane && wait.count == batch.number) rank.actions[batch.action].label = batch.number;
    }
  }
}

std::vector<std::vector<bool>> finished_before(const RankProgram& rank) { return order(rank, batches(rank)); }

Plan lane_plan(Plan plan) {
  plan.level = Level::Lane;
  for (Program& program : plan.programs) {
    for (std::size_t r = 0; r < program.ranks.size(); ++r) add_waits(plan, program, r, program.ranks[r]);
  }
  return plan;
}

bool has_race(const Plan& plan, const Program& program, std::size_t r) {
  const std::vector<Batch> all = batches(program.ranks[r]);
  const auto ordered = order(program.ranks[r], all);
  std::vector<Touched> uses;
  for (const Batch& batch : all) uses.push_back(touched(plan, program, r, batch));
  for (std::size_t b = 0; b < all.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (all[a].lane != all[b].lane && !ordered[b][a] && conflict(uses[a], uses[b])) return true;
    }
  }
  return false;
}

bool has_race(const Plan& plan, const Program& program) {
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    if (has_race(plan, program, r)) return true;
  }
  return false;
}

namespace {

class LaneWorld {
 public:
  explicit LaneWorld(const Program& program) : program_(program), ranks_(program.ranks.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const Batch& batch : batches(program.ranks[r])) lane(r, batch.lane).batches.push_back(batch);
      for (const Action& a : program.ranks[r].actions) ++members_[{r, a.group}];
    }
  }

  std::string run(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<std::size_t, Lane>> open;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (int l = 0; l < kLanes; ++l) open.push_back({r, static_cast<Lane>(l)});
    }
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(open.begin(), open.end(), random);
      for (const auto& [r, l] : open) moved = step(r, l) || moved;
    }
    for (const auto& [r, l] : open) {
      const LaneState& state = lane(r, l);
      if (state.finished == state.batches.size()) continue;
      const Batch& batch = state.batches[state.finished];
      return "rank " + std::to_string(r) + ": " +
             action_text(std::span(program_.ranks[r].actions).subspan(batch.action, batch.size));
    }
    return "";
  }

 private:
  struct LaneState {
    std::vector<Batch> batches;
    std::size_t finished = 0;
    bool started = false;
    std::vector<std::size_t> tickets;  // of the halves of the started batch
  };
  using Channel = std::tuple<std::size_t, std::size_t, bool>;  // from, to, side

  LaneState& lane(std::size_t r, Lane l) { return ranks_[r][static_cast<std::size_t>(l)]; }

  // Starts or finishes one batch; false: nothing could be done.
  bool step(std::size_t r, Lane l) {
    LaneState& state = lane(r, l);
    if (state.finished == state.batches.size()) return false;
    const Batch& batch = state.batches[state.finished];
    if (!state.started) {
      for (const Wait& wait : program_.ranks[r].waits) {
        if (wait.action == batch.action && lane(r, wait.lane).finished < wait.count) return false;
      }
      state.started = true;
      state.tickets.clear();
      each_half(r, batch, [&](const Channel& mine, const Channel&) { state.tickets.push_back(++posted_[mine]); });
      return true;
    }
    bool met = true;
    std::size_t k = 0;
    each_half(r, batch, [&](const Channel&, const Channel& other) {
      const bool there = posted_[other] >= state.tickets[k++];
      met = met && there;
    });
    if (!met) return false;
    state.started = false;
    ++state.finished;
    return true;
  }

  // The channels of a batch: messages by pair and direction; a collective meets every member's call of its number.
  template <class Use>
  void each_half(std::size_t r, const Batch& batch, Use use) {
    for (std::size_t i = batch.action; i < batch.action + batch.size; ++i) {
      const Action& a = program_.ranks[r].actions[i];
      const auto peer = static_cast<std::size_t>(a.peer);
      if (is_p2p(a.kind)) {
        const bool send = is_send(a.kind);
        use(send ? Channel{r, peer, true} : Channel{peer, r, false},
            send ? Channel{r, peer, false} : Channel{peer, r, true});
      }
      if (a.group != Group::world && a.group != Group::tied && a.group != Group::replica) continue;
      const std::size_t calls = 1000 + static_cast<std::size_t>(a.group);
      for (std::size_t other = 0; other < ranks_.size(); ++other) {
        if (!members_.contains({other, a.group})) continue;
        if (a.group == Group::replica && other != r && other != ranks_.size() - 1 - r) continue;
        use(Channel{r, calls + kGroups * other, true}, Channel{other, calls + kGroups * r, true});
      }
    }
  }

  const Program& program_;
  std::vector<std::array<LaneState, kLanes>> ranks_;
  std::map<std::pair<std::size_t, Group>, int> members_;  // ranks that call collectives of a group
  std::map<Channel, std::size_t> posted_;
};

}  // namespace

std::string run_lanes(const Program& program, std::uint32_t seed) {
  return LaneWorld(program).run(seed);
}

}  // namespace fem::ir::testing
