// The resources of one rank, numbered, and what the rows of the action table do to them. Used by the verifier's files
// only; presumes V05 and V06.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {

// Lives from step to step.
inline bool is_persistent(ResourceKind kind) {
  return kind == ResourceKind::Params || kind == ResourceKind::Shard || kind == ResourceKind::Optimizer;
}

// A row's sets as lists: the table is asked once for each action of a program.
struct Uses {
  std::vector<ResourceKind> needs;    // reads, kills, and what the row adds to without reading it
  std::vector<ResourceKind> kills;
  std::vector<ResourceKind> defines;  // written and not read: a new value
  std::vector<ResourceKind> reads;    // only read: others may read at the same time
  std::vector<ResourceKind> changes;  // written, added to or killed: nobody else may use it at the same time
};
using UseTable = std::array<Uses, kActionKinds>;
UseTable all_uses();

// "Forward, RecvForward": the actions whose row has the kind in that set.
std::string actions_with(ResourceSet ActionInfo::*set, ResourceKind kind);

class RankResources {
 public:
  static constexpr std::int64_t kAbsent = -1;
  static constexpr std::array kOfMicrobatch{ResourceKind::Input,     ResourceKind::Output,
                                            ResourceKind::GradOutput, ResourceKind::GradInput,
                                            ResourceKind::Saved,     ResourceKind::WeightWork,
                                            ResourceKind::HostCopy};
  static constexpr std::array kOfStage{ResourceKind::Params, ResourceKind::Shard, ResourceKind::Grads,
                                       ResourceKind::ReducedGrads, ResourceKind::Optimizer};
  static constexpr std::array kOfRank{ResourceKind::Loss, ResourceKind::Metrics, ResourceKind::Norm};

  RankResources(const Subject& subject, std::size_t rank);

  // Indices are below this.
  std::size_t size() const { return kOfRank.size() + stages_.size() * per_stage_; }
  const std::vector<int>& stages() const { return stages_; }

  // Index of a resource, kAbsent where it does not exist for this stage and program. What enters a stage from a stage
  // of the same rank is that stage's output itself.
  std::int64_t find(ResourceKind kind, int s, std::int64_t m) const;

  // Calls use(index, stage) for each resource of that kind that the action concerns: a row without a stage concerns all
  // stages of the rank, a reduction of copies both where they lie here.
  template <class Use>
  void each(const Action& a, ResourceKind kind, Use use) const {
    const bool copies = a.group == Group::tied || a.group == Group::replica;
    if ((a.stage < 0 || copies) && position(kOfStage, kind) >= 0) {
      for (const int s : stages_) {
        if (a.stage < 0 || layout_.groups().reduces_together(a.group, a.stage, s)) use(find(kind, s, -1), s);
      }
      return;
    }
    if (const std::int64_t index = find(kind, a.stage, a.microbatch); index != kAbsent) use(index, a.stage);
  }

  // "output(s0, m3)".
  static std::string text(ResourceKind kind, int s, std::int64_t m);

 private:
  template <std::size_t n>
  static constexpr int position(const std::array<ResourceKind, n>& kinds, ResourceKind kind) {
    for (std::size_t i = 0; i < n; ++i) {
      if (kinds[i] == kind) return static_cast<int>(i);
    }
    return -1;
  }
  std::int64_t base(int s) const;
  std::int64_t of_microbatch(ResourceKind kind, int s, std::int64_t m) const;

  const Layout& layout_;
  const std::vector<int>& stages_;
  bool forward_only_, at_stage_level_;
  std::size_t microbatches_, per_stage_;
};

}  // namespace fem::ir::verifying
