#include "executor/comm/factory.hpp"

#include "executor/comm/cuda_library.hpp"
#include "executor/comm/local_world.hpp"
#include "executor/comm/mpi_communicator.hpp"
#include "executor/comm/null_communicator.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

// Several processes that each run the whole world would train the same model several times. SLURM_NTASKS alone does not
// mean that: it is set in the batch script, where one process runs.
void check_alone(const LaunchEnvironment& launch) {
  if (launch.world_size == 1 || launch.size_variable == "SLURM_NTASKS") return;
  check_torchrun(launch, false);
  throw ExecutionError("backend local runs all ranks in one process, but " + std::string(name(launch.launcher)) +
                       " started " + launch.size_variable + "=" + std::to_string(launch.world_size) +
                       " processes: use --backend mpi or nccl, or start femrun alone");
}

}  // namespace

std::string_view name(Backend backend) {
  switch (backend) {
    case Backend::local: return "local";
    case Backend::mpi: return "mpi";
    case Backend::nccl: return "nccl";
    case Backend::null: return "null";
  }
  return "?";
}

Backend backend_from_name(std::string_view text) {
  for (Backend backend : {Backend::local, Backend::mpi, Backend::nccl, Backend::null})
    if (text == name(backend)) return backend;
  throw ExecutionError("unknown backend '" + std::string(text) + "': one of local, mpi, nccl, null");
}

World make_world(Backend backend, const Topology& topology, const LaunchEnvironment& launch,
                 const CommOptions& options) {
  World world;
  switch (backend) {
    case Backend::local: check_alone(launch); return make_local_world(topology, options);
    case Backend::mpi:
      check_torchrun(launch, false);  // torchrun starts no MPI, with a GPU or without
      check_world_size(launch, topology.size());
      world.push_back(make_mpi_communicator(topology, options));
      return world;
    case Backend::nccl:
      if (launch.launcher == Launcher::torchrun) check_torchrun(launch, gpu_available());
      check_world_size(launch, topology.size());
      world.push_back(make_nccl_communicator(topology, launch, options));
      return world;
    case Backend::null: world.push_back(make_null_communicator(topology, 0)); return world;
  }
  return world;
}

bool gpu_available() noexcept {
  try {
    return cuda_device_count() > 0;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace fem::exec
