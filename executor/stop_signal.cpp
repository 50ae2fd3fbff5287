#include "executor/stop_signal.hpp"

#include <csignal>

namespace fem::exec {
namespace {

// A signal handler reaches nothing but objects of static duration: the one such object of the executor.
constinit std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void request_stop(int) { stop_requested.store(true, std::memory_order_relaxed); }

}  // namespace

const std::atomic<bool>& watch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  return stop_requested;
}

}  // namespace fem::exec
