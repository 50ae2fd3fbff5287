// Waking one thread that waits for a condition over atomics.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fem::exec {

// The waiter spins for about a microsecond, then sleeps. Whoever changes the condition does so with a sequentially
// consistent store and calls notify: either it sees the sleeper, or the sleeper's last look sees the change.
// notify costs one load when nobody sleeps. One waiter at a time; any number of notifiers.
class Signal {
 public:
  using Clock = std::chrono::steady_clock;

  void notify() noexcept {
    if (!sleeping_.load()) return;
    std::lock_guard lock(mutex_);
    wake_.notify_one();
  }

  // ready() reads sequentially consistent atomics. False: the time was over and ready() was still false.
  template <class Ready>
  bool wait(const Ready& ready, std::chrono::milliseconds timeout) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (ready()) return true;
      pause();
    }
    const Clock::time_point deadline = Clock::now() + timeout;
    std::unique_lock lock(mutex_);
    sleeping_.store(true);
    bool done;
    while (!(done = ready()))
      if (wake_.wait_until(lock, deadline) == std::cv_status::timeout) {
        done = ready();
        break;
      }
    sleeping_.store(false);
    return done;
  }

 private:
  static constexpr int kSpins = 40;

  static void pause() noexcept {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> sleeping_{false};
};

}  // namespace fem::exec
