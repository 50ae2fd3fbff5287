// One action of a rank's program, and the table that says what each kind of action means.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/resource.hpp"

namespace fem::ir {

enum class ActionKind : std::uint8_t {
#define ACTION_ROW(name, ...) name,
#include "ir/actions.def"
};

inline constexpr int kActionKinds = 0
#define ACTION_ROW(...) +1
#include "ir/actions.def"
    ;

// How far a program has been lowered. Each level keeps the invariants of those before it.
enum class Level : std::uint8_t {
  Stage,          // what the schedule says, and the optimizer's part
  Communication,  // sends and receives are in place
  Unit,           // gathers, recompute and frees of single units
  Lane,           // lane of each action, waits, arena offsets
};

enum class Lane : std::uint8_t { Compute, P2p, Collective, Copy };
inline constexpr int kLanes = 4;
inline constexpr std::size_t lane_index(Lane lane) { return static_cast<std::size_t>(lane); }

enum class Group : std::uint8_t {
#define GROUP(name, doc) name,
#include "ir/groups.def"
  none,
};
inline constexpr int kGroups = static_cast<int>(Group::none);

// Operands that a row of the table may name; a bit set.
namespace operand {
inline constexpr unsigned kS = 1, kM = 2, kU = 4, kSlot = 8, kPeer = 16, kG = 32;
inline constexpr unsigned kStage = kS;
inline constexpr unsigned kGroup = kG;
inline constexpr unsigned kStageGroup = kS | kG;
inline constexpr unsigned kStageUnit = kS | kU;
inline constexpr unsigned kStageUnitGroup = kS | kU | kG;
inline constexpr unsigned kStageMicroPeer = kS | kM | kPeer;
inline constexpr unsigned kStageMicroUnit = kS | kM | kU;
inline constexpr unsigned kStageMicroUnitSlot = kS | kM | kU | kSlot;
}  // namespace operand

// 20 bytes, no owner of anything: programs are flat vectors of these.
struct Action {
  enum Flag : std::uint8_t {
    kJoined = 1,    // the next action of the vector belongs to the same batch (p2p halves, or an overlapped pair)
    kIfFinite = 2,  // runs only where the step's reduced `finite` flag holds
  };

  ActionKind kind{};
  std::uint8_t flags = 0;
  Lane lane = Lane::Compute;
  Group group = Group::none;
  std::int16_t stage = -1;
  std::int16_t unit = -1;  // index of the unit in the whole model; -1: all units of the stage
  std::int16_t slot = -1;  // saved slot of the unit; -1: all
  std::int16_t peer = -1;  // pp coordinate of the other rank
  std::int32_t microbatch = -1;
  std::uint32_t label = 0;  // n of "@n", 0 when no other lane waits for this action

  bool joined() const { return flags & kJoined; }
  bool if_finite() const { return flags & kIfFinite; }
  friend bool operator==(const Action&, const Action&) = default;
};
static_assert(sizeof(Action) <= 24);

// A row of actions.def.
struct ActionInfo {
  std::string_view name;
  unsigned operands;  // bits of namespace operand
  Level level;        // the first at which it may stand
  Lane lane;
  char letter;  // in timelines; 0: none
  ResourceSet reads, writes, kills;
  std::string_view doc;

  bool has(unsigned operand_bit) const { return operands & operand_bit; }
};

const ActionInfo& info(ActionKind kind);
std::string_view name(ActionKind kind);
std::string_view name(Level level);
std::string_view name(Lane lane);    // "compute", "p2p", "collective", "copy"
std::string_view name(Group group);  // "dp", ...
std::string_view doc(Group group);

inline bool is_p2p(ActionKind kind) {
  return kind == ActionKind::RecvForward || kind == ActionKind::SendForward || kind == ActionKind::RecvBackward ||
         kind == ActionKind::SendBackward;
}
inline bool is_send(ActionKind kind) { return kind == ActionKind::SendForward || kind == ActionKind::SendBackward; }
// Carries the gradient of an activation.
inline bool goes_backward(ActionKind kind) {
  return kind == ActionKind::SendBackward || kind == ActionKind::RecvBackward;
}

// Computes the gradient of the input: a whole backward, or B.
inline bool is_input_backward(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::BackwardInput;
}
// Adds to the gradients of parameters: a whole backward, or W.
inline bool is_weight_backward(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::BackwardWeight;
}
// Runs units.
inline bool is_computation(ActionKind kind) {
  return kind == ActionKind::Forward || is_input_backward(kind) || is_weight_backward(kind) ||
         kind == ActionKind::Recompute;
}

}  // namespace fem::ir
