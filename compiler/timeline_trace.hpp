// A simulated program as a trace that Chrome (about:tracing) and Perfetto open: the Trace Event Format of the Chromium
// project, JSON object form.
#pragma once

#include <string>
#include <vector>

#include "passes/memory_timeline.hpp"
#include "passes/simulate.hpp"

namespace fem::compiler {

// pid is the rank, tid the lane; each action is one complete event ("X") whose args hold its text, stage and microbatch
// (of its first half). Memory is a counter ("C") of each rank. Where a send and its receive overlap in time, a flow
// ("s", "f") connects them. `microseconds` is the length of one unit of the simulation's time.
std::string timeline_trace(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation,
                           const std::vector<passes::RankMemory>& memory, double microseconds);

}  // namespace fem::compiler
