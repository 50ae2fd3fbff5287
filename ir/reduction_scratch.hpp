// Scratch of sums over a group: the backends local and mpi add by themselves, from moves (executor/comm).
#pragma once

#include <cstdint>

#include "ir/plan.hpp"

namespace fem::ir {

// Elements that one member sums at a time: bounds the scratch at about a megabyte for each member, and stays in the
// cache.
inline constexpr std::int64_t kReductionChunk = 256 * 1024;

// fp32 elements that a sum over `members` takes, of data of so many elements.
std::int64_t all_reduce_scratch(std::int64_t members, std::int64_t elements);
std::int64_t reduce_scatter_scratch(std::int64_t members, std::int64_t elements);

// Bytes that the rank's sums of gradients take, the largest of them; from the plan's settings and stages. They run one
// after the other on lane collective and share it.
std::int64_t reduction_scratch_bytes(const Plan& plan, std::size_t rank);

}  // namespace fem::ir
