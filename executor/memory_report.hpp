// What each rank's memory came to in a run: the sizes of its buffers, and the allocator's own count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "executor/block_pool.hpp"
#include "executor/comm/communicator.hpp"
#include "executor/parameters.hpp"
#include "executor/topology.hpp"
#include "executor/tracking_allocator.hpp"

namespace fem::exec {

// Bytes. `allocator_peak` is the most that LibTorch's allocator held for the rank's thread at once. It includes the
// buffers, whose sizes are given by kind, but for the scratch of sums, and what operators allocate beside them.
struct RankMemory {
  std::int64_t parameters = 0, masters = 0, gradients = 0, optimizer = 0;  // see Parameters
  std::int64_t blocks = 0, workspace = 0;                                  // of activations: see BlockPool
  std::int64_t communication = 0;                                          // scratch of sums: see Communicator
  std::int64_t host = 0;                                                   // what is offloaded
  std::int64_t allocator_peak = 0;
};

// Memory that tensors share counts once, for the first kind in the order of the members.
RankMemory measure(const Parameters& parameters, const BlockPool& pool, const BlockPool& host,
                   const Communicator& comm, const MemoryCounter& counter);

struct RankMemoryRow {
  int rank = 0;
  Coordinates at;
  RankMemory memory;
};

// {"device", "ranks": [{"rank", "pp", "dp", "parameters_bytes", ...}]}.
void write_memory_file(const std::filesystem::path& path, std::string_view device,
                       std::span<const RankMemoryRow> ranks);

// Gathers the ranks' figures; rank 0 writes the file.
void write_memory_report(const std::filesystem::path& path, const RankMemory& mine, const Topology& topology,
                         Communicator& comm);

}  // namespace fem::exec
