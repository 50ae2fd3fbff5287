#include "executor/comm/nccl_watchdog.hpp"

#include "executor/comm/checks.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

constexpr std::chrono::milliseconds kLook{200};

}  // namespace

NcclWatchdog::NcclWatchdog(int device, NcclGroups& groups, Rendezvous& rendezvous, Progress& progress,
                           std::string self, std::chrono::milliseconds timeout)
    : groups_(groups), rendezvous_(rendezvous), progress_(progress), self_(std::move(self)), timeout_(timeout),
      thread_([this, device] { run(device); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void NcclWatchdog::issued(const Operation& operation, ir::Lane lane, cudaStream_t stream) {
  std::lock_guard lock(mutex_);
  LaneQueue& queue = queues_[static_cast<std::size_t>(lane)];
  retire(queue);
  if (queue.issued.empty()) queue.front_since = Clock::now();
  CudaEvent event = spare_.empty() ? CudaEvent() : std::move(spare_.back());
  if (!spare_.empty()) spare_.pop_back();
  event.record(stream);
  queue.issued.push_back({std::move(event), operation, progress_.step(lane), progress_.index(lane)});
}

void NcclWatchdog::retire(LaneQueue& queue) {
  while (!queue.issued.empty() && queue.issued.front().event.reached()) {
    spare_.push_back(std::move(queue.issued.front().event));
    queue.issued.pop_front();
    queue.front_since = Clock::now();
  }
}

std::string NcclWatchdog::look() {
  if (const std::string error = groups_.async_error(); !error.empty()) return self_ + ": NCCL: " + error;
  if (const std::string other = rendezvous_.failure(); !other.empty()) return other;
  std::lock_guard lock(mutex_);
  for (LaneQueue& queue : queues_) {
    retire(queue);
    if (queue.issued.empty() || Clock::now() - queue.front_since < timeout_) continue;
    const Issued& oldest = queue.issued.front();
    return ExecutionError(self_ + ": no answer for " + text(timeout_) + " in " + text(oldest.operation), -1,
                          oldest.step, progress_.describe(oldest.step, oldest.action))
        .what();
  }
  return {};
}

void NcclWatchdog::run(int device) {
  std::unique_lock lock(mutex_);
  cudaSetDevice(device);
  while (!wake_.wait_for(lock, kLook, [this] { return stop_; })) {
    if (failed_.load()) continue;
    lock.unlock();
    std::string wrong;
    try {
      wrong = look();
    } catch (const std::exception& error) {
      wrong = self_ + ": " + error.what();
    }
    if (!wrong.empty()) fail(wrong);
    lock.lock();
  }
}

void NcclWatchdog::fail(const std::string& reason) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (failed_.load()) return;
    failure_ = reason;
    failed_.store(true);
  }
  rendezvous_.announce_failure(reason);
  groups_.abort();
}

std::string NcclWatchdog::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void NcclWatchdog::drain(ir::Lane lane) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      LaneQueue& queue = queues_[static_cast<std::size_t>(lane)];
      retire(queue);
      if (queue.issued.empty() || failed_.load()) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace fem::exec
