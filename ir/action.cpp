#include "ir/action.hpp"

namespace fem::ir {
namespace {

using enum ResourceKind;

constexpr std::array<ActionInfo, kActionKinds> kTable{{
#define ACTION_ROW(name, operands, lane, reads, writes, kills, doc) \
  {#name, operands, Lane::lane, reads, writes, kills, doc},
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

std::string_view name(Lane lane) {
  switch (lane) {
    case Lane::Compute: return "compute";
    case Lane::P2p: return "p2p";
    case Lane::Collective: return "collective";
    case Lane::Copy: return "copy";
  }
  return "";
}

std::string_view name(Group group) { return kGroupTable[static_cast<std::size_t>(group)].name; }

std::string_view doc(Group group) { return kGroupTable[static_cast<std::size_t>(group)].doc; }

}  // namespace fem::ir
