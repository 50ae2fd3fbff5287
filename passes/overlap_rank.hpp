// What the passes of overlap do to one rank's program, for those who want to know before they run.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/memory_blocks.hpp"
#include "ir/plan.hpp"
#include "passes/arena_layout.hpp"

namespace fem::passes {

// The pass prefetch, on unit programs. budget 0: no limit.
void prefetch_rank(const ir::Plan& plan, std::vector<ir::Action>& actions, std::int64_t distance, std::int64_t budget);

// The pass receive_ahead.
void receive_ahead_rank(std::vector<ir::Action>& actions, std::int64_t distance);

// The pass arena: offsets of `blocks`, the rank's at level lane. Each action has its row's lane.
ArenaLayout arena_of_rank(const ir::RankProgram& rank, const ir::RankBlocks& blocks, std::int64_t slack);

// Bytes that the rank will hold once its unit program has gone through these passes as the settings say: its arena and
// what is there all the time.
std::int64_t overlapped_bytes(const ir::Plan& plan, const ir::Program& program, std::size_t rank);

}  // namespace fem::passes
