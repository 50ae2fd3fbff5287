// femrun as the parent of the mpirun that it starts.
#pragma once

#include <string>
#include <vector>

namespace fem::exec {

// Starts mpirun on `world_size` ranks of `command_line` (program first) and waits for it. A stop that this process is
// asked for goes to the ranks as SIGUSR1, which mpirun passes on and they take like SIGTERM: SIGTERM to mpirun itself
// would leave them a moment only. If this process dies, mpirun ends the ranks.
// Returns an exit code of femrun: 0 and 1 as the ranks gave it, 3 for whatever else ended them.
int run_under_mpirun(const std::vector<std::string>& command_line, int world_size);

}  // namespace fem::exec
