// Who started this process, as which rank of how many: read from the environment, and from nothing else.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace fem::exec {

enum class Launcher { none, torchrun, open_mpi, mpich, slurm };
std::string_view name(Launcher launcher);  // "torchrun", "Open MPI's mpirun", ...

struct LaunchEnvironment {
  Launcher launcher = Launcher::none;
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;  // on this host; local_world_size 0: unknown
  std::string rank_variable, size_variable;  // where rank and world size came from: "RANK", "WORLD_SIZE"

  // Rendezvous of NCCL. An empty address: not known (one host: the loopback address is used).
  std::string master_address;
  int master_port = 29500;
  bool agent_store = false;  // torchrun's agent hosts the store: every rank is a client
  int restart_count = 0;     // of torchrun's agent; part of the store's keys
};

using GetEnv = std::function<std::optional<std::string>(const char* variable)>;

// torchrun, Open MPI, MPICH (PMI), Slurm, in this order. ExecutionError that names the variables and their values where
// a value is not a number, a rank is outside its world, one of a pair is missing, or two launchers contradict each
// other. Slurm is left out of that comparison: inside its jobs the other launchers' ranks rightly differ from
// SLURM_PROCID.
LaunchEnvironment detect_launch(const GetEnv& environment);
LaunchEnvironment detect_launch();  // of this process

// ExecutionError naming the variable and both values where a launcher's world is not the plan's.
void check_world_size(const LaunchEnvironment& launch, int plan_world_size);

// torchrun starts GPU runs only: without a GPU, an ExecutionError that names mpirun and the command to use.
void check_torchrun(const LaunchEnvironment& launch, bool have_gpu);

// First host of a Slurm node list: "gpu[003-005,7],login" is gpu003, "a[1-2]b[7,9]" is a1b7. ExecutionError on others.
std::string first_slurm_host(std::string_view nodes);

}  // namespace fem::exec
