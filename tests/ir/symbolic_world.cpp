#include "tests/ir/symbolic_world.hpp"

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "tests/ir/hash.hpp"

namespace fem::ir::testing {
namespace {

enum Tag : Hash {
  kForward = 1, kGradInput, kGradWeight, kLoss, kWork, kSum, kNorm, kClip, kStep, kMetrics, kTied, kReplica
};

// What one rank holds. Names: the tensor's letter, stage, microbatch.
using Key = std::tuple<char, int, int>;

struct Failure {
  std::string reason;
};

struct Half {
  bool send = false;
  std::size_t peer = 0;
  Key key;
  bool done = false;
};

struct RankState {
  std::size_t at = 0;
  bool posted = false;
  std::map<Key, Hash> values;
  std::deque<Half> halves;
  bool tied_done = false;
  std::set<int> replicas_done;  // stages whose replicas, both on this rank, have been added
};

class World {
 public:
  World(const Plan& plan, const Program& program) : plan_(plan), program_(program), ranks_(program.ranks.size()) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const int stage = static_cast<int>(s);
      ranks_[static_cast<std::size_t>(plan.stages[s].pp)].values[{'p', stage, 0}] = hash({part(stage)});
    }
    for (RankState& rank : ranks_) rank.values[{'l', 0, 0}] = 0;
  }

  WorldResult run() {
    WorldResult result;
    try {
      while (progress()) {
      }
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].at < program_.ranks[r].actions.size()) throw Failure{"rank " + std::to_string(r) + " hangs"};
      }
      for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
        result.params.push_back(get(static_cast<std::size_t>(plan_.stages[s].pp), {'p', static_cast<int>(s), 0}));
      }
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        result.loss.push_back(get(r, {'M', 0, 0}));
        result.held.push_back(ranks_[r].values.size());
      }
    } catch (const Failure& failure) {
      return {failure.reason, {}, {}, {}};
    }
    return result;
  }

 private:
  const Stage& stage(int s) const { return plan_.stages[static_cast<std::size_t>(s)]; }
  // The part of the model: two replicas are one part.
  Hash part(int s) const { return static_cast<Hash>(stage(s).replica_of >= 0 ? stage(s).replica_of : s); }

  Hash get(std::size_t r, Key key) const {
    const auto found = ranks_[r].values.find(key);
    if (found == ranks_[r].values.end()) throw Failure{std::string("undefined ") + std::get<0>(key)};
    return found->second;
  }
  Hash take(std::size_t r, Key key) {
    const Hash value = get(r, key);
    ranks_[r].values.erase(key);
    return value;
  }
  void put(std::size_t r, Key key, Hash value) {
    if (!ranks_[r].values.emplace(key, value).second) throw Failure{std::string("overwritten ") + std::get<0>(key)};
  }
  void add(std::size_t r, Key key, Hash value) {
    get(r, key);
    ranks_[r].values[key] += value;
  }

  // One round: every rank runs as far as it can.
  bool progress() {
    bool moved = false;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      while (ranks_[r].at < program_.ranks[r].actions.size() && step(r)) moved = true;
    }
    return moved;
  }

  std::vector<Action> batch_at(std::size_t r) const {
    std::vector<Action> batch;
    const std::vector<Action>& actions = program_.ranks[r].actions;
    for (std::size_t i = ranks_[r].at; i < actions.size(); ++i) {
      batch.push_back(actions[i]);
      if (!actions[i].joined()) break;
    }
    return batch;
  }

  bool step(std::size_t r) {
    const std::vector<Action> batch = batch_at(r);
    RankState& rank = ranks_[r];
    if (is_p2p(batch[0].kind)) {
      if (!exchange(r, batch)) return false;
    } else if (batch.size() == 2) {
      // An overlapped pair: what the backward uses must be there before the forward runs.
      get(r, {'S', batch[1].stage, batch[1].microbatch});
      if (stage(batch[1].stage).next >= 0) get(r, {'g', batch[1].stage, batch[1].microbatch});
      compute(r, batch[0]);
      compute(r, batch[1]);
    } else if (batch[0].kind == ActionKind::ReduceLoss || batch[0].kind == ActionKind::GradNorm) {
      return collective(batch[0]);
    } else if (batch[0].kind == ActionKind::ReduceTiedGrad) {
      return tied(r);
    } else if (batch[0].kind == ActionKind::ReduceReplicaGrad) {
      return replicas(r, batch[0]);
    } else {
      compute(r, batch[0]);
    }
    rank.at += batch.size();
    return true;
  }

  Half half(const Action& a) const {
    const int s = a.stage, m = a.microbatch;
    const auto peer = static_cast<std::size_t>(a.peer);
    switch (a.kind) {
      case ActionKind::SendForward: return {true, peer, {'a', s, m}};
      case ActionKind::RecvForward: return {false, peer, {'a', stage(s).prev, m}};
      case ActionKind::SendBackward: return {true, peer, {'g', stage(s).prev, m}};
      case ActionKind::RecvBackward: return {false, peer, {'g', s, m}};
      default: throw Failure{"a batch of messages and other actions"};
    }
  }

  bool exchange(std::size_t r, const std::vector<Action>& batch) {
    RankState& rank = ranks_[r];
    if (!rank.posted) {
      for (const Action& a : batch) rank.halves.push_back(half(a));
      for (const Half& h : rank.halves) {
        if (h.send) get(r, h.key);
      }
      rank.posted = true;
    }
    // A half meets the first unmet half of the opposite direction in the batch that the peer has posted.
    bool all = true;
    for (Half& mine : rank.halves) {
      if (!mine.done) meet(r, mine);
      all = all && mine.done;
    }
    if (all) {
      rank.halves.clear();
      rank.posted = false;
    }
    return all;
  }

  void meet(std::size_t r, Half& mine) {
    for (const Half& earlier : ranks_[r].halves) {
      if (&earlier == &mine) break;
      if (!earlier.done && earlier.send == mine.send && earlier.peer == mine.peer) return;  // keeps the order
    }
    for (Half& other : ranks_[mine.peer].halves) {
      if (other.done || other.peer != r || other.send == mine.send) continue;
      if (mine.send) {
        put(mine.peer, other.key, take(r, mine.key));
      } else {
        put(r, mine.key, take(mine.peer, other.key));
      }
      mine.done = other.done = true;
      return;
    }
  }

  // Waits for every rank to stand at the same action over the world.
  bool collective(const Action& a) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].at == program_.ranks[r].actions.size()) throw Failure{"a rank has ended before a collective"};
      const Action& other = program_.ranks[r].actions[ranks_[r].at];
      if (other.kind != a.kind) return false;
    }
    Hash sum = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (a.kind == ActionKind::ReduceLoss) {
        sum += take(r, {'l', 0, 0});
        continue;
      }
      get(r, {'M', 0, 0});
      for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
        if (static_cast<std::size_t>(plan_.stages[s].pp) == r) sum += mix(get(r, {'R', static_cast<int>(s), 0}));
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const bool loss = a.kind == ActionKind::ReduceLoss;
      put(r, {loss ? 'M' : 'N', 0, 0}, hash({loss ? kMetrics : kNorm, sum}));
      ++ranks_[r].at;
    }
    return true;
  }

  // Whether all of these ranks stand at an action of that kind.
  bool gathered(std::initializer_list<std::size_t> ranks, ActionKind kind) const {
    for (const std::size_t r : ranks) {
      if (ranks_[r].at == program_.ranks[r].actions.size()) throw Failure{"a rank has ended before a reduction"};
      if (program_.ranks[r].actions[ranks_[r].at].kind != kind) return false;
    }
    return true;
  }

  // The stages of a rank that begin or end a direction.
  std::vector<int> copies(std::size_t r, bool begin, bool end) const {
    std::vector<int> out;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const Stage& stage = plan_.stages[s];
      if (static_cast<std::size_t>(stage.pp) != r) continue;
      if ((begin && stage.prev < 0) || (end && stage.next < 0)) out.push_back(static_cast<int>(s));
    }
    return out;
  }

  // Two ranks that have one copy each meet; a rank with both adds alone. Each rank's first call serves all its copies.
  bool tied(std::size_t r) {
    const std::vector<int> embeddings = copies(r, true, false), heads = copies(r, false, true);
    if (embeddings.empty() && heads.empty()) throw Failure{"a rank without a tied copy"};
    const int own = embeddings.empty() ? heads[0] : embeddings[0];
    int there = own;  // the other end of the direction
    while (embeddings.empty() && stage(there).prev >= 0) there = stage(there).prev;
    while (heads.empty() && stage(there).next >= 0) there = stage(there).next;
    if (!embeddings.empty() && !heads.empty()) there = heads[0];
    const auto other = static_cast<std::size_t>(stage(there).pp);
    if (!gathered({r, other}, ActionKind::ReduceTiedGrad)) return false;
    if (!ranks_[r].tied_done) {
      const Hash sum = hash({kTied, get(r, {'G', own, 0}) + get(other, {'G', there, 0})});
      for (const std::size_t member : {r, other}) {
        if (std::exchange(ranks_[member].tied_done, true)) continue;
        for (const int s : copies(member, true, true)) ranks_[member].values[{'G', s, 0}] += sum;
      }
    }
    ++ranks_[r].at;
    if (other != r) ++ranks_[other].at;
    return true;
  }

  // Meets the rank of the replica, matched by order alone; both replicas on one rank: the first call serves both.
  bool replicas(std::size_t r, const Action& a) {
    int replica = stage(a.stage).replica_of;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (plan_.stages[s].replica_of == a.stage) replica = static_cast<int>(s);
    }
    if (replica < 0) throw Failure{"a stage without a replica"};
    const auto other = static_cast<std::size_t>(stage(replica).pp);
    if (!gathered({r, other}, ActionKind::ReduceReplicaGrad)) return false;
    const Key mine{'G', a.stage, 0};
    const Key theirs{'G', other == r ? replica : int{program_.ranks[other].actions[ranks_[other].at].stage}, 0};
    if (other != r || !ranks_[r].replicas_done.contains(std::min(a.stage, static_cast<std::int16_t>(replica)))) {
      const Hash sum = hash({kReplica, get(r, mine) + get(other, theirs)});
      ranks_[r].values[mine] = ranks_[other].values[theirs] = sum;
      ranks_[r].replicas_done.insert(std::min(a.stage, static_cast<std::int16_t>(replica)));
    }
    ++ranks_[r].at;
    if (other != r) ++ranks_[other].at;
    return true;
  }

  void compute(std::size_t r, const Action& a) {
    const int s = a.stage, m = a.microbatch;
    const Hash id = part(s), mb = static_cast<Hash>(m);
    switch (a.kind) {
      case ActionKind::Forward: {
        const Hash x = stage(s).prev >= 0 ? take(r, {'a', stage(s).prev, m}) : hash({mb});
        const Hash y = hash({kForward, id, mb, x, get(r, {'p', s, 0})});
        if (!program_.forward_only) put(r, {'S', s, m}, hash({x, y}));
        if (stage(s).next >= 0) put(r, {'a', s, m}, y);
        if (stage(s).next < 0) add(r, {'l', 0, 0}, hash({kLoss, mb, y}));
        return;
      }
      case ActionKind::Backward:
      case ActionKind::BackwardInput: {
        const Hash dy = stage(s).next >= 0 ? take(r, {'g', s, m}) : hash({mb, 7});
        const Hash saved = take(r, {'S', s, m});
        if (stage(s).prev >= 0) put(r, {'g', stage(s).prev, m}, hash({kGradInput, id, dy, saved}));
        const Hash work = hash({kWork, dy, saved});
        if (a.kind == ActionKind::BackwardInput) return put(r, {'W', s, m}, work);
        return add(r, {'G', s, 0}, hash({kGradWeight, work}));
      }
      case ActionKind::BackwardWeight: return add(r, {'G', s, 0}, hash({kGradWeight, take(r, {'W', s, m})}));
      case ActionKind::ZeroGrad: return put(r, {'G', s, 0}, 0);
      case ActionKind::AllReduce:
      case ActionKind::ReduceScatter: return put(r, {'R', s, 0}, hash({kSum, take(r, {'G', s, 0})}));
      case ActionKind::ClipGrad: {
        const Hash reduced = take(r, {'R', s, 0});
        return put(r, {'R', s, 0}, hash({kClip, reduced, get(r, {'N', 0, 0}), get(r, {'M', 0, 0})}));
      }
      case ActionKind::OptimizerStep: {
        const Hash params = take(r, {'p', s, 0});
        return put(r, {'p', s, 0}, hash({kStep, params, take(r, {'R', s, 0}), Hash{a.if_finite()}}));
      }
      default: throw Failure{"an action that this world does not run"};
    }
  }

  const Plan& plan_;
  const Program& program_;
  std::vector<RankState> ranks_;
};

}  // namespace

WorldResult run_symbolically(const Plan& plan, const Program& program) { return World(plan, program).run(); }

}  // namespace fem::ir::testing
