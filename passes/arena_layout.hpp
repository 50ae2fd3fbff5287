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

// The smallest of a few heuristics' layouts. In the order of birth, each block takes the smallest hole that holds it,
// or the lowest, or the smallest with short-lived blocks at its far end; short programs also from the largest block to
// the smallest, each at the lowest offset where it meets no other. Near linear: holes are few where sizes are.
ArenaLayout lay_out(const std::vector<ArenaInterval>& intervals);

// Most bytes that are there at once: no layout is smaller.
std::int64_t most_alive(const std::vector<ArenaInterval>& intervals);

}  // namespace fem::passes
