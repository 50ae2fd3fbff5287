// SIGINT and SIGTERM as a request to stop.
#pragma once

#include <atomic>

namespace fem::exec {

// From here on the first SIGINT, SIGTERM or SIGUSR1 only sets the flag that is returned; all ranks then stop after one
// agreed step and save. A second SIGINT or SIGTERM has its default effect: it ends the process at once. SIGUSR1 is the
// one that mpirun passes on to its ranks without ending them.
const std::atomic<bool>& watch_stop_signals();

}  // namespace fem::exec
