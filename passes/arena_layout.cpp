#include "passes/arena_layout.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fem::passes {
namespace {

enum class Fit : std::uint8_t { Smallest, Lowest };

// The free ranges below the top, sorted by offset, none touching another.
class Holes {
 public:
  explicit Holes(Fit fit) : fit_(fit) {}

  std::int64_t take(std::int64_t bytes, bool far_end) {
    auto best = holes_.end();
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->bytes < bytes || (best != holes_.end() && hole->bytes >= best->bytes)) continue;
      best = hole;
      if (fit_ == Fit::Lowest) break;
    }
    if (best == holes_.end()) return grow(bytes);
    const std::int64_t offset = far_end ? best->end() - bytes : best->offset;
    if (!far_end) best->offset += bytes;
    best->bytes -= bytes;
    if (best->bytes == 0) holes_.erase(best);
    return offset;
  }

  void give_back(std::int64_t offset, std::int64_t bytes) {
    auto next = std::ranges::lower_bound(holes_, offset, {}, &Hole::offset);
    const bool joins_next = next != holes_.end() && offset + bytes == next->offset;
    const bool joins_last = next != holes_.begin() && std::prev(next)->end() == offset;
    if (joins_last) {
      std::prev(next)->bytes += bytes + (joins_next ? next->bytes : 0);
      if (joins_next) holes_.erase(next);
    } else if (joins_next) {
      next->offset = offset;
      next->bytes += bytes;
    } else {
      holes_.insert(next, {offset, bytes});
    }
  }

  std::int64_t top() const { return top_; }

 private:
  struct Hole {
    std::int64_t offset, bytes;
    std::int64_t end() const { return offset + bytes; }
  };

  // From the hole under the top, where there is one.
  std::int64_t grow(std::int64_t bytes) {
    std::int64_t offset = top_;
    if (!holes_.empty() && holes_.back().end() == top_) {
      offset = holes_.back().offset;
      holes_.pop_back();
    }
    top_ = offset + bytes;
    return offset;
  }

  Fit fit_;
  std::vector<Hole> holes_;
  std::int64_t top_ = 0;
};

// Intervals in the order of their birth, and of their death.
struct Timeline {
  explicit Timeline(const std::vector<ArenaInterval>& intervals) : births(intervals.size()) {
    std::iota(births.begin(), births.end(), 0);
    deaths = births;
    std::ranges::stable_sort(births, {}, [&](std::uint32_t i) { return intervals[i].birth; });
    std::ranges::stable_sort(deaths, {}, [&](std::uint32_t i) { return intervals[i].death; });
  }
  std::vector<std::uint32_t> births, deaths;
};

// Calls born(i) and died(i) in time order.
template <class Born, class Died>
void walk(const std::vector<ArenaInterval>& intervals, const Timeline& time, Born born, Died died) {
  std::size_t dead = 0;
  for (const std::uint32_t i : time.births) {
    for (; intervals[time.deaths[dead]].death < intervals[i].birth; ++dead) died(time.deaths[dead]);
    born(i);
  }
}

// Intervals of at most `brief` ticks go to the far end of their hole.
ArenaLayout by_birth(const std::vector<ArenaInterval>& intervals, const Timeline& time, Fit fit, std::int64_t brief) {
  ArenaLayout layout;
  layout.offsets.resize(intervals.size());
  Holes holes(fit);
  walk(
      intervals, time,
      [&](std::uint32_t i) {
        const bool far_end = std::int64_t{intervals[i].death} - intervals[i].birth < brief;
        layout.offsets[i] = holes.take(intervals[i].bytes, far_end);
      },
      [&](std::uint32_t i) { holes.give_back(layout.offsets[i], intervals[i].bytes); });
  layout.bytes = holes.top();
  return layout;
}

// Quadratic.
ArenaLayout by_size(const std::vector<ArenaInterval>& intervals) {
  std::vector<std::uint32_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::uint32_t i) { return intervals[i].bytes; });
  ArenaLayout layout;
  layout.offsets.resize(intervals.size());
  std::vector<std::uint32_t> placed;  // by offset
  placed.reserve(order.size());
  for (const std::uint32_t i : order) {
    std::int64_t offset = 0;
    for (const std::uint32_t other : placed) {
      const ArenaInterval& o = intervals[other];
      if (o.death < intervals[i].birth || intervals[i].death < o.birth) continue;
      if (layout.offsets[other] >= offset + intervals[i].bytes) break;
      offset = std::max(offset, layout.offsets[other] + o.bytes);
    }
    layout.offsets[i] = offset;
    layout.bytes = std::max(layout.bytes, offset + intervals[i].bytes);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, [&](std::uint32_t p) { return layout.offsets[p]; }), i);
  }
  return layout;
}

// Half of the intervals are shorter.
std::int64_t median_life(const std::vector<ArenaInterval>& intervals) {
  std::vector<std::int64_t> lives;
  lives.reserve(intervals.size());
  for (const ArenaInterval& i : intervals) lives.push_back(std::int64_t{i.death} - i.birth);
  const auto middle = lives.begin() + static_cast<std::ptrdiff_t>(lives.size() / 2);
  std::ranges::nth_element(lives, middle);
  return *middle;
}

}  // namespace

std::int64_t most_alive(const std::vector<ArenaInterval>& intervals) {
  std::int64_t now = 0, most = 0;
  walk(
      intervals, Timeline(intervals), [&](std::uint32_t i) { most = std::max(most, now += intervals[i].bytes); },
      [&](std::uint32_t i) { now -= intervals[i].bytes; });
  return most;
}

ArenaLayout lay_out(const std::vector<ArenaInterval>& intervals) {
  constexpr std::size_t kMostBySize = 6144;
  if (intervals.empty()) return {};
  const Timeline time(intervals);
  ArenaLayout best = by_birth(intervals, time, Fit::Smallest, 0);
  const auto consider = [&](ArenaLayout other) {
    if (other.bytes < best.bytes) best = std::move(other);
  };
  consider(by_birth(intervals, time, Fit::Lowest, 0));
  consider(by_birth(intervals, time, Fit::Smallest, median_life(intervals) + 1));
  if (intervals.size() <= kMostBySize) consider(by_size(intervals));
  return best;
}

}  // namespace fem::passes
