// What a program holds in memory as it runs: born where a row of ir/actions.def writes it, dead where a row kills it.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/plan.hpp"
#include "passes/buffer_sizes.hpp"
#include "passes/simulate.hpp"

namespace fem::passes {

struct MemoryPoint {
  double time;
  std::int64_t bytes;  // from `time` until the next point
};

struct RankMemory {
  StateBytes state;  // there from beginning to end
  std::vector<MemoryPoint> points;  // times do not decrease; the first is at 0
  std::int64_t peak = 0;
  double peak_time = 0;           // when it is reached first
  std::int32_t peak_action = -1;  // the action (first of its batch) that reaches it; -1: the state alone
};

// Parameters, gradients and optimizer state of the rank's stages (parameters that are gathered come and go with Unshard
// and Reshard), boundary activations and their gradients, saved tensors, weight work. What an action writes is there
// from its start, what it kills until its end. Workspace inside an action, the losses' sums and the copies in host
// memory do not count. `simulation` is that of the same program.
std::vector<RankMemory> memory_timeline(const ir::Plan& plan, const ir::Program& program, const Simulation& simulation,
                                        const BufferSizes& sizes);

}  // namespace fem::passes
