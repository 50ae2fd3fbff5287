// How much memory LibTorch holds for each rank of this process, and its highest point.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include <c10/core/DeviceType.h>

namespace fem::exec {

struct MemoryCounter {
  std::atomic<std::int64_t> now{0}, peak{0};
  std::function<void()> at_new_peak;  // called by the thread that counts; set before it allocates
  void add(std::int64_t bytes) {
    const std::int64_t held = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t most = peak.load(std::memory_order_relaxed);
    while (held > most && !peak.compare_exchange_weak(most, held, std::memory_order_relaxed)) {
    }
    if (held > most && at_new_peak) at_new_peak();
  }
};

// Replaces LibTorch's allocator of a device by one that counts, for the rest of the process. What was allocated before
// goes on to belong to the old one. Call it before any rank starts. Of CPU, memory; of Meta, sizes: each allocation has
// an address of its own, at which there is no memory on any machine.
void track_allocations(c10::DeviceType device = c10::DeviceType::CPU);

// Until the object goes, this thread's allocations count for a counter of its own; a release counts where the memory
// was allocated. The counter lives as long as the process: memory may outlive whoever counts it. Without
// track_allocations() it stays at 0.
class CountAllocations {
 public:
  CountAllocations();
  ~CountAllocations();
  CountAllocations(const CountAllocations&) = delete;
  CountAllocations& operator=(const CountAllocations&) = delete;

  MemoryCounter& counter() { return counter_; }
  const MemoryCounter& counter() const { return counter_; }

 private:
  MemoryCounter& counter_;
  MemoryCounter* before_;
};

// JoinAllocations does the same with the counter of another thread of the rank, which current_allocations() gave there.
MemoryCounter* current_allocations();  // nullptr: this thread's are not counted
class JoinAllocations {
 public:
  explicit JoinAllocations(MemoryCounter* counter);
  ~JoinAllocations();
  JoinAllocations(const JoinAllocations&) = delete;
  JoinAllocations& operator=(const JoinAllocations&) = delete;

 private:
  MemoryCounter* before_;
};

}  // namespace fem::exec
