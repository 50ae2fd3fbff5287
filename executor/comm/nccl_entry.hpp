// The two functions that libfem_nccl.so exports. Errors leave it as ExecutionError.
#pragma once

#include "executor/comm/communicator.hpp"
#include "executor/comm/launch.hpp"
#include "executor/topology.hpp"

extern "C" {

// Number of GPUs, at least 1; ExecutionError where none answers.
int fem_cuda_device_count();

// The caller owns the result and destroys it before the library is closed.
fem::exec::Communicator* fem_nccl_communicator(const fem::exec::Topology& topology,
                                               const fem::exec::LaunchEnvironment& launch,
                                               const fem::exec::CommOptions& options);
}
