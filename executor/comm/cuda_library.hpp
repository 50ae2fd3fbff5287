// The door to libfem_nccl.so: opened by load_cuda.cpp, or bricked up by no_cuda.cpp in a build without CUDA.
#pragma once

#include <memory>

#include "executor/comm/communicator.hpp"
#include "executor/comm/launch.hpp"
#include "executor/topology.hpp"

namespace fem::exec {

// ExecutionError: this build has no CUDA, or its library or a library that it needs cannot be loaded, or no GPU
// answers.
int cuda_device_count();

// This process's communicator on GPU launch.local_rank; collective over all ranks of the launch.
std::unique_ptr<Communicator> make_nccl_communicator(const Topology& topology, const LaunchEnvironment& launch,
                                                     const CommOptions& options = {});

}  // namespace fem::exec
