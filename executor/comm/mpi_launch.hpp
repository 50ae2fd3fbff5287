// Starting mpirun on behalf of the user: `femrun --backend mpi` outside any launcher.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace fem::exec {

struct MpirunOptions {
  bool as_root = false;   // Open MPI refuses to run as root unless told
  bool open_mpi = true;   // its options differ from those of the MPICH family
};

// The command line: mpirun's own options, the number of processes, then `command` (program first).
std::vector<std::string> mpirun_command(const std::string& mpirun, int world_size,
                                        std::span<const std::string> command, MpirunOptions options);

// Replaces this process by mpirun running the same command line on world_size ranks of this host. Comes back only as an
// ExecutionError: no mpirun in PATH, or it was itself started this way and mpirun left no rank in the environment.
[[noreturn]] void launch_mpirun(int argc, const char* const* argv, int world_size);

}  // namespace fem::exec
