// What LibTorch's allocator holds for a rank in addition to the planned memory of ir/memory_blocks.hpp.
#pragma once

#include <cstdint>

#include "ir/plan.hpp"

namespace fem::ir {

// Elements of a tied embedding that two ranks add at a time.
inline constexpr std::int64_t kTiedPiece = 1 << 20;

// From beginning to end: one set of rotary tables where the rank has blocks; scratch for the sum of a tied embedding
// whose other copy is on another rank; each stage's count of updates.
std::int64_t constant_bytes(const Plan& plan, std::size_t rank);

// Inside an action: the largest HIDDEN of ir/units.def among the rank's units, an upper bound.
std::int64_t hidden_bytes(const Plan& plan, std::size_t rank);

}  // namespace fem::ir
