// Parameters from and to files: which tensor of which file is which parameter of this rank.
#pragma once

#include <filesystem>

#include "executor/comm/communicator.hpp"
#include "executor/parameters.hpp"
#include "executor/run_inputs.hpp"
#include "executor/topology.hpp"
#include "executor/weights/checkpoint.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// Masters, moments and working copies at the start of a run: from the checkpoint, from the weights, or from the seed.
void fill_parameters(const ir::Settings& settings, const RunInputs& inputs, Parameters& parameters);

// A checkpoint written by all ranks together; every rank calls it, and it is complete when it returns. The ranks with
// dp = cp = tp = 0 write, one shard for each pipeline coordinate; of two replicas of a stage the original alone.
void save_checkpoint(const ir::Plan& plan, const std::filesystem::path& folder, const TrainingState& state,
                     const Parameters& parameters, Coordinates here, Communicator& comm);

}  // namespace fem::exec
