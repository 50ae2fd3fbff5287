// The communicators of this process, by the name of a backend.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/comm/launch.hpp"
#include "executor/topology.hpp"

namespace fem::exec {

enum class Backend { local, mpi, nccl, null };
std::string_view name(Backend backend);           // "local", "mpi", "nccl", "null"
Backend backend_from_name(std::string_view text);  // ExecutionError that lists the names

// One communicator for each rank that runs in this process, in rank order: all of the mesh for local (each is then used
// by a thread of its own), the launched rank for mpi and nccl, rank 0 for null.
using World = std::vector<std::unique_ptr<Communicator>>;

// ExecutionError where the launched world is not the mesh, where the build lacks the backend, or where there is no
// device for it. For mpi and nccl a collective call of all ranks.
World make_world(Backend backend, const Topology& topology, const LaunchEnvironment& launch,
                 const CommOptions& options = {});

// True where this build has the CUDA library and a GPU answers. Loads the CUDA library; never throws.
bool gpu_available() noexcept;

}  // namespace fem::exec
