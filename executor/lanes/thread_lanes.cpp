#include "executor/lanes/thread_lanes.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace fem::exec {
namespace {

constexpr std::uint32_t kAll = std::numeric_limits<std::uint32_t>::max();

void wait_until(const std::atomic<std::uint32_t>& counter, std::uint32_t count) {
  for (std::uint32_t seen = counter.load(std::memory_order_acquire); seen < count;
       seen = counter.load(std::memory_order_acquire))
    counter.wait(seen, std::memory_order_acquire);
}

}  // namespace

LaneTable::LaneTable(const ir::RankProgram& rank) : program(&rank) {
  std::uint32_t wait = 0, offset = 0;
  for (std::uint32_t i = 0; i < rank.actions.size();) {
    Batch batch{i, static_cast<std::uint32_t>(ir::batch_size(rank.actions, i))};
    batch.lane = rank.actions[i].lane;
    for (batch.first_wait = wait; wait < rank.waits.size() && rank.waits[wait].action == i; ++wait) ++batch.waits;
    for (batch.first_offset = offset; offset < rank.offsets.size() && rank.offsets[offset].action == i; ++offset)
      ++batch.offsets;
    by_lane[ir::lane_index(batch.lane)].push_back(static_cast<std::uint32_t>(batches.size()));
    batches.push_back(batch);
    i += batch.size;
  }
}

std::vector<ir::Lane> ThreadLanes::beside(std::span<const LaneTable> tables) {
  std::vector<ir::Lane> lanes;
  std::ranges::copy_if(kBeside, std::back_inserter(lanes), [&](ir::Lane lane) {
    return std::ranges::any_of(tables, [&](const LaneTable& t) { return !t.by_lane[ir::lane_index(lane)].empty(); });
  });
  return lanes;
}

ThreadLanes::ThreadLanes(Around around, std::span<const ir::Lane> beside) : around_(std::move(around)) {
  for (const ir::Lane lane : beside) threads_.emplace_back([this, lane] { around_([this, lane] { serve(lane); }); });
}

ThreadLanes::~ThreadLanes() {
  stop_.store(true, std::memory_order_relaxed);
  started_.value.fetch_add(1, std::memory_order_release);
  started_.value.notify_all();
}

void ThreadLanes::run(const LaneTable& table, const Execute& execute, const Failed& failed) {
  table_ = &table;
  execute_ = &execute;
  failed_call_ = &failed;
  for (Counter& counter : finished_) counter.value.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  ended_.value.store(0, std::memory_order_relaxed);
  started_.value.fetch_add(1, std::memory_order_release);
  started_.value.notify_all();
  run_lane(ir::Lane::Compute);
  wait_until(ended_.value, static_cast<std::uint32_t>(threads_.size()));
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadLanes::serve(ir::Lane lane) {
  for (std::uint32_t run = 1;; ++run) {
    wait_until(started_.value, run);
    if (stop_.load(std::memory_order_relaxed)) return;
    run_lane(lane);
    ended_.value.fetch_add(1, std::memory_order_release);
    ended_.value.notify_all();
  }
}

void ThreadLanes::run_lane(ir::Lane lane) {
  Counter& finished = finished_[ir::lane_index(lane)];
  std::uint32_t count = 0, published = 0;
  try {
    for (const std::uint32_t b : table_->by_lane[ir::lane_index(lane)]) {
      const LaneTable::Batch& batch = table_->batches[b];
      for (const ir::Wait& wait : std::span(table_->program->waits).subspan(batch.first_wait, batch.waits))
        if (!await(wait.lane, wait.count)) return;
      if (failed_.load(std::memory_order_relaxed)) return;
      (*execute_)(batch);
      ++count;
      // Only labelled batches are waited for. A failure meanwhile has set the counter to its highest value.
      std::uint32_t before = published;
      if (table_->program->actions[batch.action].label == 0) continue;
      if (!finished.value.compare_exchange_strong(before, count, std::memory_order_release)) return;
      finished.value.notify_all();
      published = count;
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

bool ThreadLanes::await(ir::Lane lane, std::uint32_t count) {
  wait_until(finished_[ir::lane_index(lane)].value, count);
  return !failed_.load(std::memory_order_relaxed);
}

void ThreadLanes::fail(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
  }
  failed_.store(true, std::memory_order_relaxed);
  (*failed_call_)(error);
  for (Counter& counter : finished_) {
    counter.value.store(kAll, std::memory_order_release);
    counter.value.notify_all();
  }
}

}  // namespace fem::exec
