#include "executor/tracking_allocator.hpp"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>

#include <c10/core/Allocator.h>

namespace fem::exec {
namespace {

constexpr std::size_t kAlignment = 64;

thread_local MemoryCounter* counter_of_thread = nullptr;

// In band before the memory: raw_allocate() needs the memory's address as its only context.
struct alignas(kAlignment) Header {
  MemoryCounter* counter;
  std::size_t bytes;
};
static_assert(sizeof(Header) == kAlignment);

Header* header_of(void* data) { return static_cast<Header*>(data) - 1; }

void release(void* data) {
  if (!data) return;
  Header* header = header_of(data);
  if (header->counter) header->counter->add(-static_cast<std::int64_t>(header->bytes));
  std::free(header);
}

class TrackingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    const std::size_t whole = (bytes + sizeof(Header) + kAlignment - 1) / kAlignment * kAlignment;
    void* memory = std::aligned_alloc(kAlignment, whole);
    if (!memory) throw std::bad_alloc();
    auto* header = new (memory) Header{counter_of_thread, bytes};
    if (header->counter) header->counter->add(static_cast<std::int64_t>(bytes));
    return {header + 1, header + 1, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

// For the Meta device, whose operators look at addresses but never follow them. Addresses are needed all the same: the
// null one means "no buffer" everywhere.
class SizeAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device meta(c10::DeviceType::Meta);
    if (bytes == 0) return {nullptr, nullptr, &release_size, meta};
    auto* held = new Header{counter_of_thread, bytes};
    if (held->counter) held->counter->add(static_cast<std::int64_t>(bytes));
    const std::uintptr_t address = next_.fetch_add((bytes + kAlignment - 1) / kAlignment * kAlignment);
    return {reinterpret_cast<void*>(address), held, &release_size, meta};
  }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  static void release_size(void* context) {
    const std::unique_ptr<Header> held(static_cast<Header*>(context));
    if (held && held->counter) held->counter->add(-static_cast<std::int64_t>(held->bytes));
  }
  // From here on no system has memory: following an address ends the process at once.
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 54};
};

MemoryCounter& new_counter() {
  static std::mutex mutex;
  static std::deque<MemoryCounter> counters;  // addresses stay
  std::lock_guard lock(mutex);
  return counters.emplace_back();
}

}  // namespace

void track_allocations(c10::DeviceType device) {
  static TrackingAllocator memory;  // LibTorch keeps the addresses for ever
  static SizeAllocator sizes;
  c10::Allocator* allocator = device == c10::DeviceType::Meta ? static_cast<c10::Allocator*>(&sizes) : &memory;
  c10::SetAllocator(device, allocator, /*priority=*/100);
}

CountAllocations::CountAllocations() : counter_(new_counter()), before_(counter_of_thread) {
  counter_of_thread = &counter_;
}
CountAllocations::~CountAllocations() { counter_of_thread = before_; }

MemoryCounter* current_allocations() { return counter_of_thread; }
JoinAllocations::JoinAllocations(MemoryCounter* counter) : before_(counter_of_thread) { counter_of_thread = counter; }
JoinAllocations::~JoinAllocations() { counter_of_thread = before_; }

}  // namespace fem::exec
