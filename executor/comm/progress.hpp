// Where each rank stands in its program, so that an error can say what a stalled rank was doing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "ir/action.hpp"

namespace fem::exec {

// One rank's position, a step and an action for each lane. The interpreter writes it before every action (one store, no
// text); any thread may read it at any time.
class Progress {
 public:
  // The text of an action of the program that runs. Called only when an error is made, maybe from another rank's
  // thread.
  using Describe = std::function<std::string(std::int64_t step, std::uint32_t action)>;

  // A lane that never enters an action of its own is taken to stand where lane Compute stands.
  void enter(std::int64_t step, std::uint32_t action, ir::Lane lane = ir::Lane::Compute) noexcept {
    at_[static_cast<std::size_t>(lane)].store((step + 1) << kActionBits | action, std::memory_order_relaxed);
  }
  void leave() noexcept {
    for (auto& at : at_) at.store(0, std::memory_order_relaxed);
  }

  // Set it before the run and clear it (nullptr) before what it refers to goes away: no call is under way afterwards.
  void describe_with(Describe describe);

  std::int64_t step(ir::Lane lane) const noexcept;       // -1: not inside a step
  std::int64_t index(ir::Lane lane) const noexcept;      // of the action in its program; -1: not inside a step
  std::string action(ir::Lane lane) const;               // "" where unknown
  std::string describe(std::int64_t step, std::int64_t index) const;  // likewise, of an action that was entered once
  std::string text(ir::Lane lane) const;                 // "at step 17, Forward s0 m4" or "not inside a step"

 private:
  static constexpr int kActionBits = 24;
  std::int64_t position(ir::Lane lane) const noexcept;

  std::array<std::atomic<std::int64_t>, ir::kLanes> at_{};  // (step + 1) and action; 0: none
  mutable std::mutex mutex_;                                // of describe_
  Describe describe_;
};

// describe_with for the life of a scope.
class ProgressScope {
 public:
  ProgressScope(Progress& progress, Progress::Describe describe) : progress_(progress) {
    progress_.describe_with(std::move(describe));
  }
  ~ProgressScope() {
    progress_.leave();
    progress_.describe_with(nullptr);
  }
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  Progress& progress_;
};

}  // namespace fem::exec
