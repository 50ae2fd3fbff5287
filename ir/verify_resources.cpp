#include "ir/verify_resources.hpp"

namespace fem::ir::verifying {
namespace {

using enum ResourceKind;

}  // namespace

UseTable all_uses() {
  UseTable table;
  for (int k = 0; k < kActionKinds; ++k) {
    const ActionInfo& row = info(static_cast<ActionKind>(k));
    Uses& uses = table[static_cast<std::size_t>(k)];
    for (int r = 0; r < kResourceKinds; ++r) {
      const auto kind = static_cast<ResourceKind>(r);
      const bool reads = row.reads.has(kind), writes = row.writes.has(kind), kills = row.kills.has(kind);
      const bool adds_to_loss = kind == Loss && writes;  // the sums start at zero with the step
      const bool adds = kind == ReducedGrads && writes && !reads;
      if (reads || kills || adds_to_loss) uses.needs.push_back(kind);
      if (kills) uses.kills.push_back(kind);
      if (adds) uses.adds.push_back(kind);
      if (writes && !reads && !adds_to_loss && !adds) uses.defines.push_back(kind);
      if (writes || kills) {
        uses.changes.push_back(kind);
      } else if (reads) {
        uses.reads.push_back(kind);
      }
    }
  }
  return table;
}

std::string actions_with(ResourceSet ActionInfo::*set, ResourceKind kind) {
  std::string out;
  for (int k = 0; k < kActionKinds; ++k) {
    const ActionInfo& row = info(static_cast<ActionKind>(k));
    if (!(row.*set).has(kind)) continue;
    if (!out.empty()) out += ", ";
    out += row.name;
  }
  return out;
}

std::string text(const ResourceName& name) {
  std::string out(ir::name(name.kind));
  if (name.stage < 0) return out;
  out += "(s" + std::to_string(name.stage);
  if (name.unit >= 0) out += ", u" + std::to_string(name.unit);
  if (name.block >= 0) out += ", k" + std::to_string(name.block);
  if (name.microbatch >= 0) out += ", m" + std::to_string(name.microbatch);
  return out + ")";
}

RankResources::RankResources(const Subject& subject, std::size_t rank)
    : layout_(subject.layout),
      stages_(layout_.stages_of(rank)),
      forward_only_(subject.program().forward_only),
      at_stage_level_(subject.plan.level == Level::Stage),
      by_unit_(subject.plan.level >= Level::Unit),
      sharded_(by_unit_ && subject.plan.settings.parallel.zero > 0),
      microbatches_(static_cast<std::size_t>(subject.program().microbatches)),
      size_(kOfRank.size()) {
  for (const int s : stages_) {
    base_.push_back(static_cast<std::int64_t>(size_));
    const auto n = static_cast<std::size_t>(pieces(s));
    size_ += kOfPiece.size() * n + microbatches_ * (kBoundary.size() * (n + 1) + kPerMicrobatch * n);
  }
}

// The last unit computes the loss; the first one notes what it read, so that both ends of the pipeline can be compared.
bool RankResources::adds_to_loss(const Action& a) const {
  const Stage& stage = layout_.stage(a.stage);
  return (stage.next < 0 && (a.unit < 0 || a.unit == stage.first_unit + stage.units - 1)) ||
         (stage.prev < 0 && (a.unit < 0 || a.unit == stage.first_unit));
}

// Boundary b lies before piece b of the stage.
std::int64_t RankResources::of_boundary(ResourceKind kind, int s, int b, std::int64_t m) const {
  if (forward_only_ && kind == GradOutput) return kAbsent;
  const Stage& stage = layout_.stage(s);
  const int n = pieces(s);
  if (b == 0) {
    if (stage.prev < 0) return kAbsent;
    if (!layout_.receives_input(s)) return of_boundary(kind, stage.prev, pieces(stage.prev), m);
    if (at_stage_level_) return kAbsent;
  }
  if (b == n && (stage.next < 0 || (at_stage_level_ && layout_.sends_output(s)))) return kAbsent;
  // Rows of one number per piece come first, then rows of one per microbatch.
  const std::int64_t row = std::int64_t{position(kBoundary, kind)} * (n + 1) + b;
  return base(s) + static_cast<std::int64_t>(kOfPiece.size()) * n + row * static_cast<std::int64_t>(microbatches_) + m;
}

std::int64_t RankResources::of_piece(ResourceKind kind, int s, int piece, int block, std::int64_t m) const {
  const int n = pieces(s);
  if (const int k = position(kOfPiece, kind); k >= 0) {
    // A whole copy is its own shard.
    const int row = kind == Shard && !sharded_ ? position(kOfPiece, Params) : k;
    return base(s) + std::int64_t{row} * n + piece;
  }
  if (forward_only_) return kAbsent;
  if (kind == SavedInput && piece == 0 && layout_.stage(s).prev < 0) return kAbsent;
  int column = 0;
  switch (kind) {
    case Saved: column = block; break;
    case HostCopy: column = static_cast<int>(kBlocks) + block; break;
    case SavedInput: column = 2 * static_cast<int>(kBlocks); break;
    default: column = 2 * static_cast<int>(kBlocks) + 1; break;
  }
  const std::int64_t row = static_cast<std::int64_t>(kBoundary.size()) * (n + 1) +
                           piece * static_cast<std::int64_t>(kPerMicrobatch) + column;
  return base(s) + static_cast<std::int64_t>(kOfPiece.size()) * n + row * static_cast<std::int64_t>(microbatches_) + m;
}

}  // namespace fem::ir::verifying
