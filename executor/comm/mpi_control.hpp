// How one process tells the others that it failed, and how all of them wait without missing that.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fem::exec {

// A communicator of its own with one receive always posted. Any thread may call.
class MpiControl {
 public:
  explicit MpiControl(MPI_Comm world);  // collective

  // Looks for news from the others.
  void poll();
  bool failed() const { return failed_.load(); }
  std::string failure() const;  // after failed(): "rank 1 failed: ..."

  // Marks this process as failed and tells all others, once.
  void announce(const std::string& reason) noexcept;
  bool announced() const { return announced_.load(); }

  // Gives the others up to `grace` to hear of it and to announce their own end. Afterwards nobody here looks for news.
  void linger(std::chrono::milliseconds grace);
  void close();  // collective, after a run without failure

 private:
  static constexpr std::size_t kText = 2048;

  void receive();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::array<char, kText> incoming_{};
  mutable std::mutex mutex_;
  std::string failure_;
  std::string outgoing_;
  std::vector<MPI_Request> sends_;
  int notices_ = 0;
  std::atomic<bool> failed_{false}, announced_{false};
  std::atomic<bool> lingered_{false};  // linger() has ended
};

enum class MpiWait { done, timed_out, failed };

// Calls done(), which tests MPI requests, until it is true. The first looks follow each other closely and give the core
// to whoever else needs it; then the thread sleeps between looks.
template <class Done>
MpiWait mpi_wait(MpiControl& control, std::chrono::milliseconds timeout, const Done& done) {
  using Clock = std::chrono::steady_clock;
  constexpr int kBrisk = 200;
  const Clock::time_point start = Clock::now();
  for (int look = 0;; ++look) {
    if (done()) return MpiWait::done;
    if (look < kBrisk) {
      std::this_thread::yield();
      if (look % 16 != 15) continue;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(look < 4 * kBrisk ? 20 : 200));
    }
    control.poll();
    if (control.failed()) return MpiWait::failed;
    if (Clock::now() - start > timeout) return MpiWait::timed_out;
  }
}

}  // namespace fem::exec
