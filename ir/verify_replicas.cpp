#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/replicas.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

// The reduction of the gradients of two replicas on one rank: how often, and where it stands.
class RankReplicas {
 public:
  RankReplicas(const Subject& subject, std::size_t rank, Report& report)
      : subject_(subject),
        layout_(subject.layout),
        rank_(rank),
        actions_(subject.program().ranks[rank].actions),
        report_(report),
        reduced_(layout_.stages_of(rank).size()) {}

  void run() {
    if (counts()) order();
  }

 private:
  bool counts() {
    std::vector<std::size_t> found(reduced_.size());
    for (const Action& a : actions_) {
      if (a.kind == ActionKind::ReduceReplicaGrad) ++found[layout_.local_index(a.stage)];
    }
    bool ok = true;
    for (const int s : layout_.stages_of(rank_)) {
      const int other = layout_.groups().other_replica(s);
      const std::size_t needed = other >= 0 && !subject_.program().forward_only;
      const std::size_t count = found[layout_.local_index(s)];
      if (count == needed) continue;
      ok = false;
      const std::string why = subject_.program().forward_only ? "none: a forward_only program has no gradients"
                              : other < 0                     ? "none: it has no replica"
                                          : "1 with stage " + std::to_string(other) + ", its replica";
      report_.rank(Code::V26, subject_.index, rank_,
                   "stage " + std::to_string(s) + " has " + std::to_string(count) + " ReduceReplicaGrad, but needs " +
                       why);
    }
    return ok;
  }

  void order() {
    std::size_t tied = 0;  // index + 1 of the first ReduceTiedGrad
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const Action& a = actions_[i];
      if (a.kind == ActionKind::ReduceTiedGrad && tied == 0) tied = i + 1;
      if (a.kind == ActionKind::ReduceReplicaGrad) {
        // Both replicas on this rank: the first call adds them.
        for (const int s : layout_.stages_of(rank_)) {
          std::size_t& first = reduced_[layout_.local_index(s)];
          if (first == 0 && layout_.groups().reduces_together(Group::replica, a.stage, s)) first = i + 1;
        }
        if (tied == 0 || layout_.tied_copies(a.stage) == 0) continue;
        return report_.action(Code::V26, place(i),
                              "stands after " + report_.at(place(tied - 1)) +
                                  ", which adds the copies of the embedding: their replicas must be added first");
      }
      const bool adds = is_weight_backward(a.kind);
      const std::size_t reduced = adds ? reduced_[layout_.local_index(a.stage)] : 0;
      if (reduced == 0) continue;
      return report_.action(Code::V26, place(reduced - 1),
                            "stands before " + report_.at(place(i)) + ", which adds to the gradients of stage " +
                                std::to_string(a.stage) + "; it must stand after the last of them");
    }
  }

  Place place(std::size_t action) const { return {subject_.index, rank_, action}; }

  const Subject& subject_;
  const Layout& layout_;
  std::size_t rank_;
  const std::vector<Action>& actions_;
  Report& report_;
  std::vector<std::size_t> reduced_;  // by stage of the rank: index + 1 of the action that adds its replicas
};

// The sum over the replicas of a shard group: after the last ReduceScatter of the unit, and before what needs it whole.
class RankShards {
 public:
  RankShards(const Subject& subject, std::size_t rank, Report& report)
      : subject_(subject), rank_(rank), actions_(subject.program().ranks[rank].actions), report_(report) {}

  void run() {
    std::size_t norm = 0;  // index + 1 of the first GradNorm
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const Action& a = actions_[i];
      if (a.kind == ActionKind::GradNorm && norm == 0) norm = i + 1;
      if (a.kind == ActionKind::AllReduceShard) {
        if (norm > 0) return after_norm(i, norm - 1);
        summed_.try_emplace({a.stage, a.unit}, i);
        summed_.try_emplace({a.stage, kAnyUnit}, i);
      }
      if (a.kind != ActionKind::ReduceScatter) continue;
      for (const int unit : {a.unit < 0 ? kAnyUnit : int{a.unit}, kWholeStage}) {
        const auto found = summed_.find({a.stage, unit});
        if (found != summed_.end()) return before(found->second, i);
      }
    }
  }

 private:
  static constexpr int kWholeStage = -1, kAnyUnit = -2;

  void after_norm(std::size_t i, std::size_t norm) {
    report_.action(Code::V26, place(i), "stands after " + report_.at(place(norm)) +
                                            ", which needs the sums over all replicas; it must stand before that");
  }
  void before(std::size_t i, std::size_t reduction) {
    report_.action(Code::V26, place(i),
                   "stands before " + report_.at(place(reduction)) +
                       ", which adds to the same gradients; it must stand after the last of them");
  }
  Place place(std::size_t action) const { return {subject_.index, rank_, action}; }

  const Subject& subject_;
  std::size_t rank_;
  const std::vector<Action>& actions_;
  Report& report_;
  std::map<std::pair<int, int>, std::size_t> summed_;  // by stage and unit: the first AllReduceShard
};

}  // namespace

void check_replicas(const Subject& subject, Report& report) {
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) {
    RankReplicas(subject, r, report).run();
    if (has_shard_groups(subject.plan.settings)) RankShards(subject, r, report).run();
  }
}

}  // namespace fem::ir::verifying
