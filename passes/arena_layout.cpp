#include "passes/arena_layout.hpp"

#include <algorithm>
#include <numeric>

namespace fem::passes {
namespace {

// The free ranges below the top, sorted by offset, none touching another.
class Holes {
 public:
  std::int64_t take(std::int64_t bytes) {
    auto best = holes_.end();
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->bytes >= bytes && (best == holes_.end() || hole->bytes < best->bytes)) best = hole;
    }
    if (best == holes_.end()) return grow(bytes);
    const std::int64_t offset = best->offset;
    best->offset += bytes;
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

  std::vector<Hole> holes_;
  std::int64_t top_ = 0;
};

}  // namespace

ArenaLayout lay_out(const std::vector<ArenaInterval>& intervals) {
  std::vector<std::uint32_t> births(intervals.size());
  std::iota(births.begin(), births.end(), 0);
  std::vector<std::uint32_t> deaths = births;
  std::ranges::stable_sort(births, {}, [&](std::uint32_t i) { return intervals[i].birth; });
  std::ranges::stable_sort(deaths, {}, [&](std::uint32_t i) { return intervals[i].death; });
  ArenaLayout layout;
  layout.offsets.resize(intervals.size());
  Holes holes;
  std::size_t dead = 0;
  for (const std::uint32_t i : births) {
    for (; intervals[deaths[dead]].death < intervals[i].birth; ++dead) {
      holes.give_back(layout.offsets[deaths[dead]], intervals[deaths[dead]].bytes);
    }
    layout.offsets[i] = holes.take(intervals[i].bytes);
  }
  layout.bytes = holes.top();
  return layout;
}

}  // namespace fem::passes
