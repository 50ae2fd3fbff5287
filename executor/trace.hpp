// What each lane of each rank did in a step, as it was measured.
#pragma once

#include <filesystem>
#include <span>

#include "executor/comm/communicator.hpp"
#include "executor/interpreter.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// Gathers the ranks' times of one run of the program (one for each batch of this rank's actions); rank 0 writes them
// in the Trace Event Format of the Chromium project, which Perfetto opens: a process for each rank, a thread for each
// lane. Times count from the earliest of all; between hosts their clocks' difference is in them.
void write_trace(const std::filesystem::path& path, const ir::Program& program, std::span<const BatchTime> mine,
                 const Topology& topology, Communicator& comm);

}  // namespace fem::exec
