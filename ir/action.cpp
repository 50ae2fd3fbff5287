#include "ir/action.hpp"

namespace fem::ir {
namespace {

using enum ResourceKind;

constexpr std::array<ActionInfo, kActionKinds> kTable{{
#define ACTION_ROW(name, operands, level, lane, letter, reads, writes, kills, doc) \
  {#name, operands, Level::level, Lane::lane, letter, reads, writes, kills, doc},
#include "ir/actions.def"
}};

struct GroupInfo {
  std::string_view name, doc;
};

constexpr std::array<GroupInfo, kGroups + 1> kGroupTable{{
#define GROUP(name, doc) {#name, doc},
#include "ir/groups.def"
    {"none", "no group"},
}};

}  // namespace

const ActionInfo& info(ActionKind kind) { return kTable[static_cast<std::size_t>(kind)]; }

std::string_view name(ActionKind kind) { return info(kind).name; }

std::string_view name(Level level) {
  switch (level) {
    case Level::Stage: return "stage";
    case Level::Communication: return "communication";
    case Level::Unit: return "unit";
    case Level::Lane: return "lane";
  }
  return "";
}

std::string_view name(Lane lane) {
  switch (lane) {
    case Lane::Compute: return "compute";
    case Lane::P2p: return "p2p";
    case Lane::Collective: return "collective";
    case Lane::Copy: return "copy";
  }
  return "";
}

std::string_view name(ResourceKind kind) {
  switch (kind) {
    case Input: return "input";
    case Output: return "output";
    case GradOutput: return "grad_output";
    case GradInput: return "grad_input";
    case Saved: return "saved";
    case SavedRest: return "saved_rest";
    case SavedInput: return "saved_input";
    case WeightWork: return "weight_work";
    case HostCopy: return "host_copy";
    case Params: return "params";
    case Shard: return "shard";
    case Grads: return "grads";
    case ReducedGrads: return "reduced_grads";
    case Optimizer: return "optimizer";
    case HostOptimizer: return "host_optimizer";
    case Loss: return "loss";
    case Metrics: return "metrics";
    case Norm: return "norm";
  }
  return "";
}

std::string_view name(Group group) { return kGroupTable[static_cast<std::size_t>(group)].name; }

std::string_view doc(Group group) { return kGroupTable[static_cast<std::size_t>(group)].doc; }

}  // namespace fem::ir
