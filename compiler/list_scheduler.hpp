// List scheduling of a pipeline: a rank that is free runs the first operation of a list of priorities that is ready.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/order.hpp"

namespace fem::compiler {

struct PriorityEntry {
  OpKind kind = OpKind::F;
  std::optional<int> slot;  // none: of any chunk or direction, the one that has come less far, then the lower one
};

// A rank's forwards may be ahead of its operations of that kind by so many (in chunks, over all slots of the rank).
struct PriorityCap {
  OpKind behind = OpKind::B;       // B, I or W
  std::vector<std::int64_t> most;  // by rank
};

struct PriorityRule {
  std::vector<PriorityEntry> entries;  // the first comes first
  std::vector<PriorityCap> caps;
  std::int64_t forward = 1, input = 1, weight = 1;  // times; a whole backward takes input + weight
};

// Microbatches of a slot ascend in every kind. Empty when the caps leave no rank anything to run; `blocked` is then the
// first rank that has operations left.
std::optional<Order> list_schedule(const PriorityRule& rule, const Placement& placement, std::int64_t m, int& blocked);

}  // namespace fem::compiler
