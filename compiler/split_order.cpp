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

SpanEvaluator::SpanEvaluator(int p, std::int64_t m, const SearchCosts& costs) : m_(m), costs_(costs) {
  for (auto& ends : ends_) ends.resize(static_cast<std::size_t>(p) * static_cast<std::size_t>(m));
  ranks_.resize(static_cast<std::size_t>(p));
}

void SpanEvaluator::run(const KindRows& rows, std::size_t r) {
  Rank& rank = ranks_[r];
  const KindRow& row = rows[r];
  const std::size_t last = ranks_.size() - 1;
  for (; rank.next < row.size(); ++rank.next) {
    const OpKind kind = row[rank.next];
    const std::int64_t i = rank.done[static_cast<std::size_t>(kind)];
    std::int64_t start = rank.clock;
    if (kind != OpKind::W) {
      const bool forward = kind == OpKind::F;
      if (!forward && end(true, r, i) < 0) return;  // its own forward comes later in the row: this blocks for good
      if (forward ? r > 0 : r < last) {
        const std::int64_t produced = end(forward, forward ? r - 1 : r + 1, i);
        if (produced < 0) return;
        start = std::max(start, produced + costs_.transfer);
      }
      end(forward, r, i) = start + costs_.time(kind);
      if (forward && r < last) runnable_.push_back(r + 1);
      if (!forward && r > 0) runnable_.push_back(r - 1);
    } else if (i >= rank.done[static_cast<std::size_t>(OpKind::I)]) {
      return;
    }
    if (rank.first_start < 0) rank.first_start = start;
    rank.clock = start + costs_.time(kind);
    ++rank.done[static_cast<std::size_t>(kind)];
  }
}

std::optional<Spans> SpanEvaluator::spans(const KindRows& rows) {
  for (auto& ends : ends_) std::ranges::fill(ends, -1);
  std::ranges::fill(ranks_, Rank{});
  for (std::size_t r = 0; r < ranks_.size(); ++r) run(rows, r);
  while (!runnable_.empty()) {
    const std::size_t r = runnable_.back();
    runnable_.pop_back();
    run(rows, r);
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

std::int64_t peak_memory(const KindRow& row, const SearchCosts& costs) {
  std::int64_t now = 0, most = 0;
  for (const OpKind kind : row) {
    now += costs.memory(kind);
    most = std::max(most, now);
  }
  return most;
}

KindRow lagged_row(std::int64_t m, std::int64_t warm_up, std::int64_t lag) {
  KindRow row(static_cast<std::size_t>(std::min(warm_up, m)), OpKind::F);
  std::int64_t forwards = std::ssize(row), weights = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    if (forwards < m) {
      row.push_back(OpKind::F);
      ++forwards;
    }
    row.push_back(OpKind::I);
    if (i < lag) continue;
    row.push_back(OpKind::W);
    ++weights;
  }
  for (; weights < m; ++weights) row.push_back(OpKind::W);
  return row;
}

Order to_order(const KindRows& rows) {
  Order order;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    order.emplace_back();
    std::array<std::int32_t, kOpKinds> done{};
    for (const OpKind kind : rows[r]) {
      order.back().push_back({kind, false, static_cast<std::int16_t>(r), done[static_cast<std::size_t>(kind)]++});
    }
  }
  return order;
}

}  // namespace fem::compiler
