// Offsets for blocks whose lifetimes are known: dynamic storage allocation, as compilers name it.
#pragma once

#include <cstdint>
#include <vector>

namespace fem::passes {

// There from the beginning of tick `birth` to the end of tick `death`.
struct ArenaInterval {
  std::uint32_t birth, death;
  std::int64_t bytes;  // a multiple of the alignment wanted
};

struct ArenaLayout {
  std::vector<std::int64_t> offsets;  // by interval
  std::int64_t bytes = 0;             // end of the last one
};

// Best fit in the order of birth: each takes the smallest hole that holds it, the lowest of those. Near linear: holes
// are few where sizes are.
ArenaLayout lay_out(const std::vector<ArenaInterval>& intervals);

}  // namespace fem::passes
