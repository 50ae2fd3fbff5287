// What each rank's memory came to in a run: the sizes of its buffers, and the allocator's own count.
#pragma once

#include <cstdint>
#include <filesystem>

#include "executor/comm/communicator.hpp"
#include "executor/parameters.hpp"
#include "executor/topology.hpp"

namespace fem::exec {

// Bytes. `allocator_peak` is the most that LibTorch's allocator held for the rank's thread at once; the others are the
// sizes of buffers, which it includes.
struct RankMemory {
  std::int64_t parameters = 0, masters = 0, gradients = 0, optimizer = 0;  // see Parameters
  std::int64_t blocks = 0, workspace = 0;                                  // of activations: see BlockPool
  std::int64_t host = 0;                                                   // copies of offloaded blocks
  std::int64_t allocator_peak = 0;
};

// The first four: memory that tensors share counts once, for the first kind in the order of the members.
RankMemory measure(const Parameters& parameters);

// Gathers the ranks' figures; rank 0 writes {"ranks": [{"rank", "pp", "dp", "parameters_bytes", ...}]}.
void write_memory_report(const std::filesystem::path& path, const RankMemory& mine, const Topology& topology,
                         Communicator& comm);

}  // namespace fem::exec
