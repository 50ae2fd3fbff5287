// Says where a rank stands when it was asked to stop and does not get on.
#pragma once

#include <atomic>
#include <ostream>
#include <thread>

#include "executor/comm/communicator.hpp"
#include "executor/topology.hpp"

namespace fem::exec {

// While it lives, a thread looks at the stop flag. Once it is set and the rank has stood at one action for half a
// second, it writes one line. A peer that was killed makes mpirun ask the other ranks to stop, and a moment later ends
// them: then this line is what tells in which step and action they waited.
class StopWatch {
 public:
  StopWatch(Communicator& comm, const Topology& topology, const std::atomic<bool>& stop, std::ostream& err);

 private:
  std::jthread thread_;
};

}  // namespace fem::exec
