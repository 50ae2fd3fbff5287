// All ranks of this process, run to the end.
#pragma once

#include <functional>

#include "executor/comm/factory.hpp"
#include "executor/trainer.hpp"

namespace fem::exec {

// Runs `rank_main` for each communicator: in the calling thread where there is one, else in a thread each, with one
// intra-op thread. The first error of any rank ends all (the others are told through their communicators) and is thrown
// once all have returned.
void run_ranks(World& world, const std::function<void(Communicator&)>& rank_main);

// The run of a plan on the ranks of this process, with inputs opened by open_inputs(). The summary of the first rank. A
// run that all ranks gave up is an ExecutionError with the step, whose message begins with "stopped because" where rank
// 0 is in another process.
RunSummary run_world(World& world, const ir::Plan& plan, const RunInputs& inputs, const RunOptions& options);

// The same with all ranks as threads of this process, inputs opened here.
RunSummary run_world_local(const ir::Plan& plan, const RunOptions& options, const CommOptions& comm = {});

}  // namespace fem::exec
