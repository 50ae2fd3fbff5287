// Programs at the lane level, and what is true of them, found without the verifier: by comparing all pairs of actions
// and by running the lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan.hpp"

namespace fem::ir::testing {

// Gives the labels that the waits ask for, and no others.
void set_labels(RankProgram& rank);

// [b][a], batches in program order: a has finished when b starts. Quadratic.
std::vector<std::vector<bool>> finished_before(const RankProgram& rank);

// The plan at the lane level: every action on its row's lane, with waits that order all conflicts.
Plan lane_plan(Plan communication_plan);

// Two batches on different lanes of the rank, first before second in the program, use one resource, one of them
// changing it, and neither the lanes' order nor the waits put one before the other. Quadratic.
bool has_race(const Plan& plan, const Program& program, std::size_t rank);
bool has_race(const Plan& plan, const Program& program);

// Runs all lanes of all ranks at the same time: each lane in its own order, a batch when what it waits for has
// finished, messages and collectives under rendezvous; the seed chooses who goes first. "" when everything finishes,
// else a blocked batch.
std::string run_lanes(const Program& program, std::uint32_t seed);

}  // namespace fem::ir::testing
