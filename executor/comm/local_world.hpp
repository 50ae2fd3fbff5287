// Ranks as threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/topology.hpp"

namespace fem::exec {

// One communicator per rank of the mesh, in rank order. Each lane of each is used by one thread at a time.
// They share their state, so they may be destroyed in any order, at any time when no call is under way.
std::vector<std::unique_ptr<Communicator>> make_local_world(const Topology& topology, const CommOptions& options = {});

}  // namespace fem::exec
