#include "executor/stop_watch.hpp"

#include <chrono>
#include <string>

namespace fem::exec {
namespace {

constexpr std::chrono::milliseconds kLook{50};
constexpr int kLooks = 10;  // half a second at one place

void watch(const std::stop_token& end, Communicator& comm, const std::string& who, const std::atomic<bool>& stop,
           std::ostream& err) {
  std::string place;
  int looks = 0;
  while (!end.stop_requested()) {
    std::this_thread::sleep_for(kLook);
    if (!stop.load()) continue;
    const std::string now = comm.progress().text(ir::Lane::P2p);
    looks = now == place ? looks + 1 : 0;
    place = now;
    if (looks < kLooks) continue;
    err << "femrun: " + who + " was asked to stop and is still " + place + "\n" << std::flush;
    return;
  }
}

}  // namespace

StopWatch::StopWatch(Communicator& comm, const Topology& topology, const std::atomic<bool>& stop, std::ostream& err)
    : thread_([&, who = "rank " + std::to_string(comm.rank()) + " (" + topology.place(comm.rank()) + ")"](
                  const std::stop_token& end) { watch(end, comm, who, stop, err); }) {}

}  // namespace fem::exec
