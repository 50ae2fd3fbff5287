// The resources of one rank, numbered, and what the rows of the action table do to them. Used by the verifier's files
// only; presumes V05 and V06.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/units.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {

// A row's sets as lists: the table is asked once for each action of a program.
struct Uses {
  std::vector<ResourceKind> needs;    // reads, kills, and what the row adds to without reading it
  std::vector<ResourceKind> kills;
  std::vector<ResourceKind> defines;  // written and not read: a new value
  std::vector<ResourceKind> adds;     // written and not read, but added to what may be there
  std::vector<ResourceKind> reads;    // only read: others may read at the same time
  std::vector<ResourceKind> changes;  // written, added to or killed: nobody else may use it at the same time
};
using UseTable = std::array<Uses, kActionKinds>;
UseTable all_uses();

// "Forward, RecvForward": the actions whose row has the kind in that set.
std::string actions_with(ResourceSet ActionInfo::*set, ResourceKind kind);

// A resource by its operands; -1 where it has none.
struct ResourceName {
  ResourceKind kind;
  int stage = -1, unit = -1, block = -1;
  std::int64_t microbatch = -1;
};
std::string text(const ResourceName& name);  // "saved(s0, u3, k1, m2)"

// Below level unit a stage is one piece; from there on each of its units is. An action that names no unit concerns all
// pieces of its stage; between two pieces lies a boundary with an activation and its gradient.
class RankResources {
 public:
  static constexpr std::int64_t kAbsent = -1;
  static constexpr std::array kOfPiece{ResourceKind::Params, ResourceKind::Shard, ResourceKind::Grads,
                                       ResourceKind::ReducedGrads, ResourceKind::Optimizer,
                                       ResourceKind::HostOptimizer};
  static constexpr std::array kOfRank{ResourceKind::Loss, ResourceKind::Metrics, ResourceKind::Norm};

  RankResources(const Subject& subject, std::size_t rank);

  // Indices are below this.
  std::size_t size() const { return size_; }
  const std::vector<int>& stages() const { return stages_; }

  // Index of one of kOfRank.
  static std::int64_t of_rank(ResourceKind kind) { return position(kOfRank, kind); }

  // Calls use(index, name) for each resource of that kind that the action concerns and that exists for its stage and
  // program: a row without a stage concerns all stages of the rank, a reduction of copies both where they lie here.
  // What enters a stage from a stage of the same rank is that stage's output itself.
  template <class Use>
  void each(const Action& a, ResourceKind kind, Use use) const {
    if (const int k = position(kOfRank, kind); k >= 0) {
      if (kind == ResourceKind::Loss && a.stage >= 0 && !adds_to_loss(a)) return;
      return use(std::int64_t{k}, ResourceName{kind});
    }
    if (a.group == Group::tied || a.group == Group::replica) return each_copy(a, kind, use);
    if (kind == ResourceKind::SavedRest) {
      if (a.slot >= 0) each(ResourceKind::Saved, a.stage, a.unit, 1 - a.slot, a.microbatch, use);
      return;
    }
    if (a.stage >= 0) return each(kind, a.stage, a.unit, a.slot, a.microbatch, use);
    for (const int s : stages_) each(kind, s, -1, -1, a.microbatch, use);
  }

  // Calls use(index, name) once for each resource that is not of kOfRank.
  template <class Use>
  void each(Use use) const {
    for (const int s : stages_) {
      for (const ResourceKind kind : kOfPiece) each(kind, s, -1, -1, -1, use);
      for (std::int64_t m = 0; m < static_cast<std::int64_t>(microbatches_); ++m) {
        for (const ResourceKind kind : {ResourceKind::Output, ResourceKind::GradOutput}) {
          for (int b = 0; b <= pieces(s); ++b) boundary(kind, s, b, m, use);
        }
        for (const ResourceKind kind : kOfMicrobatch) each(kind, s, -1, -1, m, use);
      }
    }
  }

 private:
  static constexpr std::array kBoundary{ResourceKind::Output, ResourceKind::GradOutput};
  static constexpr std::array kOfMicrobatch{ResourceKind::Saved, ResourceKind::SavedInput, ResourceKind::WeightWork,
                                            ResourceKind::HostCopy};
  static constexpr std::size_t kBlocks = kSavedBlocks;  // of Saved and HostCopy
  static constexpr std::size_t kPerMicrobatch = 2 * kBlocks + 2;

  template <std::size_t n>
  static constexpr int position(const std::array<ResourceKind, n>& kinds, ResourceKind kind) {
    for (std::size_t i = 0; i < n; ++i) {
      if (kinds[i] == kind) return static_cast<int>(i);
    }
    return -1;
  }
  int pieces(int s) const { return by_unit_ ? layout_.stage(s).units : 1; }
  int unit_of(int s, int piece) const { return by_unit_ ? layout_.stage(s).first_unit + piece : -1; }
  bool adds_to_loss(const Action& a) const;
  std::int64_t base(int s) const { return base_[layout_.local_index(s)]; }
  std::int64_t of_boundary(ResourceKind kind, int s, int b, std::int64_t m) const;
  std::int64_t of_piece(ResourceKind kind, int s, int piece, int block, std::int64_t m) const;

  template <class Use>
  void boundary(ResourceKind kind, int s, int b, std::int64_t m, Use& use) const {
    const std::int64_t index = of_boundary(kind, s, b, m);
    if (index == kAbsent) return;
    // Named after the piece that it leaves; what enters the stage from another rank has only its other name.
    const bool leaves = b > 0;
    ResourceKind named = kind;
    if (!leaves) named = kind == ResourceKind::Output ? ResourceKind::Input : ResourceKind::GradInput;
    use(index, ResourceName{named, s, unit_of(s, leaves ? b - 1 : 0), -1, m});
  }

  // Of replicas all units take part, of a tied embedding the units that hold a copy.
  template <class Use>
  void each_copy(const Action& a, ResourceKind kind, Use use) const {
    for (const int s : stages_) {
      if (!layout_.groups().reduces_together(a.group, a.stage, s)) continue;
      if (a.group == Group::replica || !by_unit_) {
        each(kind, s, -1, -1, -1, use);
        continue;
      }
      const Stage& stage = layout_.stage(s);
      if (stage.prev < 0) each(kind, s, stage.first_unit, -1, -1, use);
      if (stage.next < 0) each(kind, s, stage.first_unit + stage.units - 1, -1, -1, use);
    }
  }

  template <class Use>
  void each(ResourceKind kind, int s, int unit, int block, std::int64_t m, Use use) const;

  const Layout& layout_;
  const std::vector<int>& stages_;
  bool forward_only_, at_stage_level_, by_unit_, sharded_;
  std::size_t microbatches_, size_;
  std::vector<std::int64_t> base_;  // by local stage
};

template <class Use>
void RankResources::each(ResourceKind kind, int s, int unit, int block, std::int64_t m, Use use) const {
  const int n = pieces(s);
  const int first = unit < 0 || !by_unit_ ? 0 : unit - layout_.stage(s).first_unit;
  const int last = unit < 0 || !by_unit_ ? n - 1 : first;
  const bool enters = kind == ResourceKind::Input || kind == ResourceKind::GradInput;
  if (enters || kind == ResourceKind::Output || kind == ResourceKind::GradOutput) {
    const bool forward = kind == ResourceKind::Input || kind == ResourceKind::Output;
    const int b = enters ? first : last + 1;
    const std::int64_t index =
        of_boundary(forward ? ResourceKind::Output : ResourceKind::GradOutput, s, b, m);
    // An action of a whole stage names what enters or leaves the stage.
    if (index != kAbsent) use(index, ResourceName{kind, s, unit, -1, m});
    return;
  }
  const bool blocks = by_unit_ && (kind == ResourceKind::Saved || kind == ResourceKind::HostCopy);
  const int first_block = blocks && block >= 0 ? block : 0;
  const int last_block = !blocks ? 0 : block >= 0 ? block : static_cast<int>(kBlocks) - 1;
  const bool of_microbatch = position(kOfPiece, kind) < 0;
  for (int piece = first; piece <= last; ++piece) {
    for (int k = first_block; k <= last_block; ++k) {
      const std::int64_t index = of_piece(kind, s, piece, k, m);
      if (index == kAbsent) continue;
      use(index, ResourceName{kind, s, unit_of(s, piece), blocks ? k : -1, of_microbatch ? m : -1});
    }
  }
}

}  // namespace fem::ir::verifying
