#include "ir/verify_resources.hpp"

namespace fem::ir::verifying {
namespace {

using enum ResourceKind;

std::string_view resource_name(ResourceKind kind) {
  switch (kind) {
    case Input: return "input";
    case Output: return "output";
    case GradOutput: return "grad_output";
    case GradInput: return "grad_input";
    case Saved: return "saved";
    case WeightWork: return "weight_work";
    case HostCopy: return "host_copy";
    case Params: return "params";
    case Shard: return "shard";
    case Grads: return "grads";
    case ReducedGrads: return "reduced_grads";
    case Optimizer: return "optimizer";
    case Loss: return "loss";
    case Metrics: return "metrics";
    case Norm: return "norm";
  }
  return "";
}

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
      if (reads || kills || adds_to_loss) uses.needs.push_back(kind);
      if (kills) uses.kills.push_back(kind);
      // Parameters are overwritten in place by the optimizer.
      if (writes && !reads && !adds_to_loss && kind != Params) uses.defines.push_back(kind);
      if (writes && kind == Params && row.reads.has(Shard)) uses.defines.push_back(kind);
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

RankResources::RankResources(const Subject& subject, std::size_t rank)
    : layout_(subject.layout),
      stages_(layout_.stages_of(rank)),
      forward_only_(subject.program().forward_only),
      at_stage_level_(subject.plan.level == Level::Stage),
      microbatches_(static_cast<std::size_t>(subject.program().microbatches)),
      per_stage_(kOfMicrobatch.size() * microbatches_ + kOfStage.size()) {}

std::int64_t RankResources::find(ResourceKind kind, int s, std::int64_t m) const {
  if (const int k = position(kOfRank, kind); k >= 0) {
    const bool no_loss = kind == Loss && s >= 0 && layout_.stage(s).next >= 0;
    return no_loss ? kAbsent : k;
  }
  if (const int k = position(kOfStage, kind); k >= 0) return base(s) + k;
  const Stage& stage = layout_.stage(s);
  const bool is_forward_tensor = kind == Input || kind == Output;
  if (forward_only_ && !is_forward_tensor) return kAbsent;
  if (kind == Input || kind == GradInput) {
    if (stage.prev < 0) return kAbsent;
    if (!layout_.receives_input(s)) return of_microbatch(kind == Input ? Output : GradOutput, stage.prev, m);
    if (at_stage_level_) return kAbsent;
  }
  if ((kind == Output || kind == GradOutput) && (stage.next < 0 || (at_stage_level_ && layout_.sends_output(s)))) {
    return kAbsent;
  }
  return of_microbatch(kind, s, m);
}

std::int64_t RankResources::base(int s) const {
  return static_cast<std::int64_t>(kOfRank.size() + layout_.local_index(s) * per_stage_);
}

std::int64_t RankResources::of_microbatch(ResourceKind kind, int s, std::int64_t m) const {
  return base(s) + static_cast<std::int64_t>(kOfStage.size()) +
         position(kOfMicrobatch, kind) * static_cast<std::int64_t>(microbatches_) + m;
}

std::string RankResources::text(ResourceKind kind, int s, std::int64_t m) {
  std::string out(resource_name(kind));
  if (position(kOfRank, kind) >= 0) return out;
  out += "(s" + std::to_string(s);
  if (position(kOfMicrobatch, kind) >= 0) out += ", m" + std::to_string(m);
  return out + ")";
}

}  // namespace fem::ir::verifying
