// Ranks as processes over MPI. A build without MPI has these functions from no_mpi.cpp, which throws.
#pragma once

#include <memory>

#include "executor/comm/communicator.hpp"
#include "executor/topology.hpp"

namespace fem::exec {

// MPI from MPI_Init to MPI_Finalize, which a process can do once. A world made while one of these lives uses it;
// otherwise the world makes its own and no second one can follow it.
class MpiRuntime {
 public:
  MpiRuntime();  // ExecutionError where MPI grants less than MPI_THREAD_MULTIPLE, or was finalized before
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

 private:
  bool owner_ = false;
};

// This process's communicator; collective over all processes. ExecutionError where MPI's world is not the mesh.
//
// After a failure (fail(), or any error thrown by a call) the world cannot be used again. Its destructor then gives the
// other ranks a moment to learn of it and ends them all with MPI_Abort, exit code 3, so write messages before it.
std::unique_ptr<Communicator> make_mpi_communicator(const Topology& topology, const CommOptions& options = {});

}  // namespace fem::exec
