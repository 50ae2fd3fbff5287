// What the order within lanes and the waits between them prove: which batches have finished when another one starts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "ir/action.hpp"

namespace fem::ir {

// Of each lane, a number of batches: its first so many.
using LaneCounts = std::array<std::uint32_t, kLanes>;

// Vector clocks of one rank's batches, given in program order.
class LaneOrder {
 public:
  // The next batch, on this lane: it starts after its lane's earlier ones.
  void begin(Lane lane) {
    lane_ = lane;
    before_ = finished_[lane_index(lane)].empty() ? LaneCounts{} : finished_[lane_index(lane)].back();
  }
  // The batch also waits for the n-th (from 1) of another lane, which has been given before.
  void wait(Lane lane, std::uint32_t n) {
    const LaneCounts& known = finished_[lane_index(lane)][n - 1];
    for (std::size_t l = 0; l < before_.size(); ++l) before_[l] = std::max(before_[l], known[l]);
  }
  void end() {
    LaneCounts after = before_;
    after[lane_index(lane_)] = number();
    finished_[lane_index(lane_)].push_back(after);
  }

  // Of the batch between begin() and end(): its lane, its number there, and what has finished before it starts.
  Lane lane() const { return lane_; }
  std::uint32_t number() const { return static_cast<std::uint32_t>(finished_[lane_index(lane_)].size()) + 1; }
  const LaneCounts& before() const { return before_; }
  // What has finished once the n-th of a lane has, itself included.
  const LaneCounts& after(Lane lane, std::uint32_t n) const { return finished_[lane_index(lane)][n - 1]; }

 private:
  std::array<std::vector<LaneCounts>, kLanes> finished_;
  LaneCounts before_{};
  Lane lane_ = Lane::Compute;
};

}  // namespace fem::ir
