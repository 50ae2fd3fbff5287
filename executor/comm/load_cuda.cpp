// Opens libfem_nccl.so, which lies beside the program. It stays open: CUDA cannot be unloaded.
#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "executor/comm/cuda_library.hpp"
#include "executor/comm/nccl_entry.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

void* library() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path file = program.parent_path() / "libfem_nccl.so";
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle)
    throw ExecutionError("the CUDA backend cannot be loaded: " + std::string(dlerror()) +
                         "; use --device cpu with --backend local or mpi");
  return handle;
}

template <class Function>
Function* entry(const char* symbol) {
  void* address = dlsym(library(), symbol);
  FEM_CHECK(address != nullptr, std::string("libfem_nccl.so has no ") + symbol);
  return reinterpret_cast<Function*>(address);
}

}  // namespace

int cuda_device_count() { return entry<decltype(fem_cuda_device_count)>("fem_cuda_device_count")(); }

std::unique_ptr<Communicator> make_nccl_communicator(const Topology& topology, const LaunchEnvironment& launch,
                                                     const CommOptions& options) {
  return std::unique_ptr<Communicator>(
      entry<decltype(fem_nccl_communicator)>("fem_nccl_communicator")(topology, launch, options));
}

}  // namespace fem::exec
