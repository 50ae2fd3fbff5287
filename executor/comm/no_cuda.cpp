// Stands in for load_cuda.cpp in a build without CUDA.
#include "executor/comm/cuda_library.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

[[noreturn]] void no_cuda() {
  throw ExecutionError("this build has no CUDA: install a CUDA toolkit of LibTorch's version with NCCL and configure "
                       "again, or use --device cpu with --backend local or mpi");
}

}  // namespace

int cuda_device_count() { no_cuda(); }

std::unique_ptr<Communicator> make_nccl_communicator(const Topology&, const LaunchEnvironment&, const CommOptions&) {
  no_cuda();
}

}  // namespace fem::exec
