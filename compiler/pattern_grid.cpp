#include "compiler/pattern_grid.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace fem::compiler {
namespace {

constexpr std::int64_t kNever = std::int64_t{1} << 60;
constexpr int kMaxRounds = 4;
constexpr std::int64_t kMaxSlots = std::int64_t{1} << 24;  // of a rank

int change_in_flight(OpKind kind) { return kind == OpKind::F ? 1 : kind == OpKind::W ? -1 : 0; }

// The slot after the last of every operation's, by kind, stage and microbatch; kNever where it has not run.
class EndTable {
 public:
  EndTable(const Placement& placement, std::int64_t m) : placement_(placement), m_(m) {
    for (auto& kind : ends_) kind.assign(static_cast<std::size_t>(placement.stages() * m), kNever);
  }
  std::int64_t& at(OpKind kind, int stage, std::int64_t microbatch) {
    return ends_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(stage * m_ + microbatch)];
  }
  std::int64_t& at(const Op& op) { return at(op.kind, op.stage, op.microbatch); }

  // The first slot in which the operation's inputs are there.
  std::int64_t ready(const Op& op) {
    const int neighbour = op.kind == OpKind::F ? placement_.previous(op.stage) : placement_.next(op.stage);
    const std::int64_t from = neighbour >= 0 && op.kind != OpKind::W ? at(op.kind, neighbour, op.microbatch) : 0;
    if (op.kind == OpKind::F) return from;
    return std::max(from, at(op.kind == OpKind::I ? OpKind::F : OpKind::I, op.stage, op.microbatch));
  }

 private:
  const Placement& placement_;
  std::int64_t m_;
  std::array<std::vector<std::int64_t>, kOpKinds> ends_;
};

int peak(const SlotRow& row) {
  int in_flight = 0, most = 0;
  for (const auto& op : row) {
    if (op) in_flight += change_in_flight(op->kind);
    most = std::max(most, in_flight);
  }
  return most;
}

struct Queued {
  Op op;
  std::int64_t slot;  // in the grid
};

// One rank of the list scheduler: queues that keep the grid's order, one of forwards, and of each other kind and chunk
// one.
struct ListRank {
  std::vector<std::vector<Queued>> queues;
  std::vector<std::size_t> next;
  int in_flight = 0, cap = 0;

  ListRank(const SlotRow& row, const Placement& placement) : cap(peak(row)) {
    queues.resize(static_cast<std::size_t>(1 + 2 * placement.slots()));
    next.resize(queues.size(), 0);
    for (std::size_t t = 0; t < row.size(); ++t) {
      if (!row[t]) continue;
      const int chunk = placement.slot(row[t]->stage);
      const int queue = row[t]->kind == OpKind::F ? 0 : 1 + 2 * chunk + (row[t]->kind == OpKind::W);
      queues[static_cast<std::size_t>(queue)].push_back({*row[t], static_cast<std::int64_t>(t)});
    }
  }

  // The queue whose first operation runs at `now`, or -1.
  int choose(EndTable& ends, std::int64_t now) const {
    const bool forward_waits =
        in_flight >= cap && next[0] < queues[0].size() && ends.ready(queues[0][next[0]].op) <= now;
    int best = -1;
    std::pair<bool, std::int64_t> best_key;
    for (std::size_t q = 0; q < queues.size(); ++q) {
      if (next[q] == queues[q].size()) continue;
      const Queued& first = queues[q][next[q]];
      if (q == 0 && in_flight >= cap) continue;
      if (ends.ready(first.op) > now) continue;
      const std::pair<bool, std::int64_t> key{first.op.kind == OpKind::W && !forward_waits, first.slot};
      if (best >= 0 && key >= best_key) continue;
      best = static_cast<int>(q);
      best_key = key;
    }
    return best;
  }
};

std::vector<SlotRow> list_schedule(const std::vector<SlotRow>& grid, const Placement& placement, std::int64_t m) {
  std::vector<ListRank> ranks;
  std::size_t left = 0;
  for (const SlotRow& row : grid) {
    ranks.emplace_back(row, placement);
    left += static_cast<std::size_t>(std::ranges::count_if(row, [](const auto& op) { return op.has_value(); }));
  }
  EndTable ends(placement, m);
  std::vector<SlotRow> result(grid.size());
  for (std::int64_t now = 0; left > 0; ++now) {
    // What ends in this slot is ready in the next: choices of one slot do not see each other.
    std::vector<int> chosen;
    for (const ListRank& rank : ranks) chosen.push_back(rank.choose(ends, now));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      result[r].emplace_back();
      if (chosen[r] < 0) continue;
      const auto q = static_cast<std::size_t>(chosen[r]);
      const Op& op = ranks[r].queues[q][ranks[r].next[q]++].op;
      result[r].back() = op;
      ends.at(op) = now + 1;
      ranks[r].in_flight += change_in_flight(op.kind);
      --left;
    }
  }
  return result;
}

// Moves operations of the first slots into earlier free ones, in the order of their slots.
class Mover {
 public:
  Mover(std::vector<SlotRow>& rows, const Placement& placement, std::int64_t m, const std::vector<int>& caps)
      : rows_(rows), caps_(caps), ends_(placement, m) {
    for (const SlotRow& row : rows_) {
      std::vector<int> in_flight;
      int now = 0;
      for (std::size_t t = 0; t < row.size(); ++t) {
        if (row[t]) {
          ends_.at(*row[t]) = static_cast<std::int64_t>(t) + 1;
          now += change_in_flight(row[t]->kind);
        }
        in_flight.push_back(now);
      }
      in_flight_.push_back(std::move(in_flight));
    }
  }

  void run(std::size_t slots) {
    const std::size_t length = std::ranges::max(rows_, {}, &SlotRow::size).size();
    for (std::size_t t = 0; t < std::min(length, slots); ++t) {
      for (std::size_t r = 0; r < rows_.size(); ++r) {
        if (t < rows_[r].size() && rows_[r][t]) move(r, t);
      }
    }
  }

 private:
  void move(std::size_t r, std::size_t t) {
    SlotRow& row = rows_[r];
    const Op op = *row[t];
    const auto ready = static_cast<std::size_t>(ends_.ready(op));
    std::size_t to = t;
    if (op.kind == OpKind::F) {  // it would be in flight from there on
      for (std::size_t x = t; x-- > ready && in_flight_[r][x] < caps_[r];) {
        if (!row[x]) to = x;
      }
    } else {
      for (std::size_t x = ready; x < t && to == t; ++x) {
        if (!row[x]) to = x;
      }
    }
    if (to == t) return;
    row[to] = op;
    row[t].reset();
    ends_.at(op) = static_cast<std::int64_t>(to) + 1;
    for (std::size_t x = to; x < t; ++x) in_flight_[r][x] += change_in_flight(op.kind);
  }

  std::vector<SlotRow>& rows_;
  const std::vector<int>& caps_;
  EndTable ends_;
  std::vector<std::vector<int>> in_flight_;  // [rank][slot]: after the slot's operation
};

Order order_of(const std::vector<SlotRow>& rows) {
  Order order;
  for (const SlotRow& row : rows) {
    order.emplace_back();
    for (const auto& op : row) {
      if (op) order.back().push_back(*op);
    }
  }
  return order;
}

// Every rank runs its order as early as dependences allow.
std::vector<SlotRow> run_eagerly(const Order& order, const Placement& placement, std::int64_t m) {
  EndTable ends(placement, m);
  std::vector<SlotRow> rows(order.size());
  std::vector<std::size_t> next(order.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < order.size(); ++r) {
      for (; next[r] < order[r].size(); ++next[r], moved = true) {
        const Op& op = order[r][next[r]];
        const std::int64_t ready = ends.ready(op);
        if (ready == kNever) break;
        const std::size_t slot = std::max(rows[r].size(), static_cast<std::size_t>(ready));
        rows[r].resize(slot + 1);
        rows[r][slot] = op;
        ends.at(op) = static_cast<std::int64_t>(slot) + 1;
      }
    }
  }
  return rows;
}

std::size_t length(const std::vector<SlotRow>& rows) { return std::ranges::max(rows, {}, &SlotRow::size).size(); }

}  // namespace

std::optional<SlotRow> lay_out(const std::vector<PatternOffset>& offsets, std::int64_t period, int rank,
                               const Placement& placement, std::int64_t m, std::string& reason) {
  SlotRow row;
  const auto slot_of = [&](std::int64_t t) -> std::optional<Op>& {
    if (static_cast<std::size_t>(t) >= row.size()) row.resize(static_cast<std::size_t>(t) + 1);
    return row[static_cast<std::size_t>(t)];
  };
  for (const PatternOffset& at : offsets) {
    if (at.offset < 0) {
      reason = fmt::format("rank {}: the offset of {}{} is {}", rank, letter(at.kind), at.chunk, at.offset);
      return std::nullopt;
    }
    if (at.offset > kMaxSlots || period > (kMaxSlots - at.offset) / m) {
      reason = fmt::format("rank {}: {}{} with offset {} and period {} takes more than {} slots", rank, letter(at.kind),
                           at.chunk, at.offset, period, kMaxSlots);
      return std::nullopt;
    }
    for (std::int64_t i = 0; i < m; ++i) {
      std::optional<Op>& slot = slot_of(at.offset + period * i);
      if (slot) {
        reason = fmt::format("rank {}: {}{} of microbatch {} falls into slot {}, which {}{} of microbatch {} has", rank,
                             letter(at.kind), at.chunk, i, at.offset + period * i, letter(slot->kind),
                             placement.slot(slot->stage), slot->microbatch);
        return std::nullopt;
      }
      slot =
          Op{at.kind, false, static_cast<std::int16_t>(placement.stage(rank, at.chunk)), static_cast<std::int32_t>(i)};
    }
  }
  for (std::size_t t = 0, free = 0; t < row.size(); ++t) {
    if (!row[t] || row[t]->kind != OpKind::I) continue;
    const Op input = *row[t];
    for (free = std::max(free, t + 1); free < row.size() && row[free]; ++free) {
    }
    slot_of(static_cast<std::int64_t>(free)) = Op{OpKind::W, false, input.stage, input.microbatch};
  }
  return row;
}

std::string causality_fault(const std::vector<SlotRow>& grid, const Placement& placement, std::int64_t m) {
  EndTable ends(placement, m);
  for (const SlotRow& row : grid) {
    for (std::size_t t = 0; t < row.size(); ++t) {
      if (row[t]) ends.at(*row[t]) = static_cast<std::int64_t>(t) + 1;
    }
  }
  for (std::size_t r = 0; r < grid.size(); ++r) {
    for (std::size_t t = 0; t < grid[r].size(); ++t) {
      const auto& op = grid[r][t];
      if (!op || ends.ready(*op) <= static_cast<std::int64_t>(t)) continue;
      return fmt::format("rank {}: {}{} of microbatch {} stands in slot {}, but what it needs ends with slot {}", r,
                         letter(op->kind), placement.slot(op->stage), op->microbatch, t, ends.ready(*op) - 1);
    }
  }
  return {};
}

Order squeeze(const std::vector<SlotRow>& grid, const Placement& placement, std::int64_t m) {
  std::vector<int> caps;
  for (const SlotRow& row : grid) caps.push_back(peak(row));
  std::vector<SlotRow> best = list_schedule(grid, placement, m);
  const auto warm_up = static_cast<std::size_t>(2 * placement.stages());
  for (int round = 0; round < kMaxRounds; ++round) {
    std::vector<SlotRow> rows = best;
    Mover(rows, placement, m, caps).run(warm_up);
    rows = run_eagerly(order_of(rows), placement, m);
    const bool better = round == 0 ? length(rows) <= length(best) : length(rows) < length(best);
    if (!better) break;
    best = std::move(rows);
  }
  return order_of(best);
}

}  // namespace fem::compiler
