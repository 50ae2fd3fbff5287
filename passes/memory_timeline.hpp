// What a program holds in memory as it runs: the blocks of ir/memory_blocks.hpp at the times of a simulation.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/memory_blocks.hpp"
#include "ir/plan.hpp"
#include "passes/simulate.hpp"

namespace fem::passes {

struct MemoryPoint {
  double time;
  std::int64_t bytes;  // from `time` until the next point
};

struct RankMemory {
  ir::KindBytes state{};            // there from beginning to end, by kind
  std::vector<MemoryPoint> points;  // times do not decrease; the first is at 0
  std::int64_t peak = 0;
  double peak_time = 0;           // when it is reached first
  std::int32_t peak_action = -1;  // the action (first of its batch) that reaches it; -1: the state alone
};

// A block is there from the start of the action that makes it to the end of the last that uses it. An action of a whole
// stage runs its units one after the other, each for an equal part of its time. `simulation` is that of the same
// program; where communication holds up no rank, a message's buffers are there for as long as it is under way.
std::vector<RankMemory> memory_timeline(const ir::Plan& plan, const ir::Program& program, const Simulation& simulation);

}  // namespace fem::passes
