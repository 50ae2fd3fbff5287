#include "compiler/split_order.hpp"

#include <algorithm>
#include <array>

namespace fem::compiler {

std::int64_t SearchCosts::time(OpKind kind) const {
  switch (kind) {
    case OpKind::F:
      return forward;
    case OpKind::I:
      return input;
    case OpKind::W:
      return weight;
    case OpKind::B:
      return input + weight;
  }
  return 0;
}

std::int64_t SearchCosts::memory(OpKind kind) const {
  switch (kind) {
    case OpKind::F:
      return forward_memory;
    case OpKind::I:
      return input_memory;
    case OpKind::W:
      return weight_memory;
    case OpKind::B:
      return input_memory + weight_memory;
  }
  return 0;
}

SpanEvaluator::SpanEvaluator(const Placement& placement, std::int64_t m, const SearchCosts& costs)
    : slots_(static_cast<std::size_t>(placement.slots())),
      work_(placement.slots() * m * (costs.forward + costs.input + costs.weight)) {
  for (std::size_t kind = 0; kind < kOpKinds; ++kind) times_[kind] = costs.time(static_cast<OpKind>(kind));
  const std::int64_t stages = placement.stages();
  ends_.resize(static_cast<std::size_t>(2 * stages * m));
  ranks_.resize(static_cast<std::size_t>(placement.p));
  counts_.resize(ranks_.size() * slots_ * kOpKinds);
  for (int rank = 0; rank < placement.p; ++rank) {
    for (int slot = 0; slot < placement.slots(); ++slot) {
      const int stage = placement.stage(rank, slot);
      Route& route = routes_.emplace_back();
      for (const int direction : {0, 1}) {
        const int before = direction == 0 ? placement.previous(stage) : placement.next(stage);
        const int after = direction == 0 ? placement.next(stage) : placement.previous(stage);
        route.own[direction] = (direction * stages + stage) * m;
        if (before >= 0) {
          route.from[direction] = (direction * stages + before) * m;
          route.transfer[direction] = placement.rank(before) == rank ? 0 : costs.transfer;
        }
        if (after >= 0 && placement.rank(after) != rank) route.to[direction] = placement.rank(after);
      }
    }
  }
}

bool SpanEvaluator::run(const StepRows& rows, int r, std::int64_t limit) {
  Rank& rank = ranks_[static_cast<std::size_t>(r)];
  const StepRow& row = rows[static_cast<std::size_t>(r)];
  const std::size_t first_slot = static_cast<std::size_t>(r) * slots_;
  for (rank.awaits = -1; rank.next < row.size(); ++rank.next) {
    const Step step = row[rank.next];
    std::int64_t* const counts = &counts_[(first_slot + step.slot) * kOpKinds];
    const std::int64_t i = counts[static_cast<std::size_t>(step.kind)];
    std::int64_t start = rank.clock;
    if (step.kind == OpKind::W) {
      if (i >= counts[static_cast<std::size_t>(OpKind::I)]) return true;
    } else {
      const Route& route = routes_[first_slot + step.slot];
      const std::size_t direction = step.kind == OpKind::F ? 0 : 1;
      // An own forward that comes later in the row blocks for good.
      if (direction == 1 && i >= counts[static_cast<std::size_t>(OpKind::F)]) return true;
      if (route.from[direction] >= 0) {
        const std::int64_t produced = ends_[static_cast<std::size_t>(route.from[direction] + i)];
        if (produced < 0) {
          rank.awaits = route.from[direction] + i;
          return true;
        }
        start = std::max(start, produced + route.transfer[direction]);
      }
      const std::int64_t made = route.own[direction] + i;
      ends_[static_cast<std::size_t>(made)] = start + times_[static_cast<std::size_t>(step.kind)];
      const int to = route.to[direction];
      if (to >= 0 && ranks_[static_cast<std::size_t>(to)].awaits == made) runnable_.push_back(to);
    }
    if (rank.first_start < 0) {
      rank.first_start = start;
    } else {
      rank.bubble += start - rank.clock;
      if (rank.bubble > limit) return false;
    }
    rank.clock = start + times_[static_cast<std::size_t>(step.kind)];
    ++counts[static_cast<std::size_t>(step.kind)];
  }
  return true;
}

std::optional<Spans> SpanEvaluator::spans(const StepRows& rows, std::int64_t limit) {
  std::ranges::fill(ends_, -1);
  std::ranges::fill(counts_, 0);
  std::ranges::fill(ranks_, Rank{});
  runnable_.clear();
  const std::int64_t bubble = limit - work_;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    if (!run(rows, r, bubble)) return std::nullopt;
  }
  while (!runnable_.empty()) {
    const int r = runnable_.back();
    runnable_.pop_back();
    if (!run(rows, r, bubble)) return std::nullopt;
  }
  Spans spans;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].next < rows[r].size()) return std::nullopt;
    const std::int64_t span = ranks_[r].clock - ranks_[r].first_start;
    spans.longest = std::max(spans.longest, span);
    spans.total += span;
  }
  return spans;
}

std::int64_t peak_memory(const StepRow& row, const SearchCosts& costs) {
  std::int64_t now = 0, most = 0;
  for (const Step& step : row) {
    now += costs.memory(step.kind);
    most = std::max(most, now);
  }
  return most;
}

bool fits_into_cap(const StepRows& rows, const SearchCosts& costs) {
  return std::ranges::all_of(rows, [&](const StepRow& row) { return peak_memory(row, costs) <= costs.cap; });
}

StepRow lagged_row(std::int64_t m, std::int64_t warm_up, std::int64_t lag) {
  StepRow row(static_cast<std::size_t>(std::min(warm_up, m)), Step{OpKind::F});
  std::int64_t forwards = std::ssize(row), weights = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    if (forwards < m) {
      row.push_back({OpKind::F});
      ++forwards;
    }
    row.push_back({OpKind::I});
    if (i < lag) continue;
    row.push_back({OpKind::W});
    ++weights;
  }
  for (; weights < m; ++weights) row.push_back({OpKind::W});
  return row;
}

Order to_order(const StepRows& rows, const Placement& placement) {
  Order order;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    order.emplace_back();
    std::vector<std::array<std::int32_t, kOpKinds>> done(static_cast<std::size_t>(placement.slots()));
    for (const Step& step : rows[r]) {
      const int stage = placement.stage(static_cast<int>(r), step.slot);
      const std::int32_t microbatch = done[step.slot][static_cast<std::size_t>(step.kind)]++;
      order.back().push_back({step.kind, false, static_cast<std::int16_t>(stage), microbatch});
    }
  }
  return order;
}

std::optional<StepRows> to_steps(const Order& order, const Placement& placement) {
  StepRows rows;
  for (const RankOrder& rank : order) {
    StepRow& row = rows.emplace_back();
    for (const Op& op : rank) {
      if (op.joined || op.kind == OpKind::B) return std::nullopt;
      row.push_back({op.kind, static_cast<std::uint8_t>(placement.slot(op.stage))});
    }
  }
  if (to_order(rows, placement) != order) return std::nullopt;
  return rows;
}

}  // namespace fem::compiler
