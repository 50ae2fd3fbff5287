// What each batch of a rank's lane program touches, as numbers: for tools that watch lanes run.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/plan.hpp"

namespace fem::ir {

struct BatchUses {
  std::vector<std::uint32_t> reads, changes;  // resources of the actions' rows
  std::vector<std::uint32_t> begins, ends;    // blocks: born here; used by this lane for the last time
};

struct LaneUses {
  std::vector<BatchUses> batches;    // in program order
  std::uint32_t resources = 0;       // numbers are below this
  std::vector<std::int64_t> blocks;  // bytes; offsets are RankProgram::offsets
};

// Presumes a program of level lane that verifies but for its waits.
LaneUses lane_uses(const Plan& plan, std::size_t program, std::size_t rank);

}  // namespace fem::ir
