// Watches what was issued to the GPU: nothing there raises a hand when a peer is gone.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/comm/nccl_groups.hpp"
#include "executor/comm/nccl_rendezvous.hpp"
#include "executor/comm/operation.hpp"
#include "executor/lanes/cuda_lanes.hpp"

namespace fem::exec {

// A thread that looks several times a second at the oldest unfinished operation of each lane, at NCCL's own errors and
// at what other ranks announced. On trouble it announces the failure, aborts NCCL (so that streams drain) and remembers
// why.
class NcclWatchdog {
 public:
  NcclWatchdog(int device, NcclGroups& groups, Rendezvous& rendezvous, Progress& progress, std::string self,
               std::chrono::milliseconds timeout);
  ~NcclWatchdog();

  // After each call: what was issued on the lane's stream, as far as it goes now.
  void issued(const Operation& operation, ir::Lane lane, cudaStream_t stream);
  bool failed() const { return failed_.load(); }
  std::string failure() const;
  void fail(const std::string& reason) noexcept;
  // Blocks until all that was issued on the lane is done or the world has failed.
  void drain(ir::Lane lane);

 private:
  using Clock = std::chrono::steady_clock;
  struct Issued {
    CudaEvent event;
    Operation operation;
    std::int64_t step, action;  // where the lane stood: text is made when something failed
  };
  struct LaneQueue {
    std::deque<Issued> issued;
    Clock::time_point front_since;  // since when the first one has been the oldest
  };

  void run(int device);
  std::string look();  // what is wrong, or ""
  void retire(LaneQueue& queue);

  NcclGroups& groups_;
  Rendezvous& rendezvous_;
  Progress& progress_;
  std::string self_;  // "rank 2 (pp 1 dp 0)"
  std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::array<LaneQueue, ir::kLanes> queues_;
  std::vector<CudaEvent> spare_;
  std::string failure_;
  std::atomic<bool> failed_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace fem::exec
