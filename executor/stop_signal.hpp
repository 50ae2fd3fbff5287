// SIGINT and SIGTERM as a request to stop.
#pragma once

#include <atomic>

namespace fem::exec {

// From here on the first SIGINT or SIGTERM only sets the flag that is returned; all ranks then stop after one agreed step
// and save. A second one has the signal's default effect: it ends the process at once.
const std::atomic<bool>& watch_stop_signals();

}  // namespace fem::exec
