#include "executor/stop_signal.hpp"

#include <csignal>

namespace fem::exec {
namespace {

// A signal handler reaches nothing but objects of static duration: the one such object of the executor.
constinit std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void request_stop(int) { stop_requested.store(true, std::memory_order_relaxed); }

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

}  // namespace

const std::atomic<bool>& watch_stop_signals() {
  for (int signal : {SIGINT, SIGTERM}) handle(signal, request_stop, SA_RESTART | static_cast<int>(SA_RESETHAND));
  handle(SIGUSR1, request_stop, SA_RESTART);
  return stop_requested;
}

}  // namespace fem::exec
