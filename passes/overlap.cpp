#include "passes/overlap.hpp"

#include <algorithm>

namespace fem::passes {

std::vector<ActionTime> merged(std::initializer_list<std::span<const ActionTime>> lists) {
  std::vector<std::span<const ActionTime>> rest(lists);
  std::vector<ActionTime> out;
  for (;;) {
    std::span<const ActionTime>* first = nullptr;
    for (auto& list : rest) {
      if (!list.empty() && (!first || list.front().start < first->front().start)) first = &list;
    }
    if (!first) return out;
    const ActionTime& next = first->front();
    if (out.empty() || next.start > out.back().end) {
      out.push_back(next);
    } else {
      out.back().end = std::max(out.back().end, next.end);
    }
    *first = first->subspan(1);
  }
}

double overlap(std::span<const ActionTime> a, std::span<const ActionTime> b) {
  double sum = 0;
  while (!a.empty() && !b.empty()) {
    const double start = std::max(a.front().start, b.front().start), end = std::min(a.front().end, b.front().end);
    sum += std::max(0.0, end - start);
    auto& earlier = a.front().end < b.front().end ? a : b;
    earlier = earlier.subspan(1);
  }
  return sum;
}

}  // namespace fem::passes
