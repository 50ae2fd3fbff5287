// The communicator of a dry run: one rank alone, calls are checked and move nothing.
#pragma once

#include <memory>

#include "executor/comm/communicator.hpp"

namespace fem::exec {

// Plays `rank` of the mesh. Buffers may be null (a device without data); peers, roots, groups and sizes are checked as
// the other backends do. What would be received is left as it is.
std::unique_ptr<Communicator> make_null_communicator(const Topology& topology, int rank);

}  // namespace fem::exec
