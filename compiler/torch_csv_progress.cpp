// What crosses ranks in a schedule file: the order of messages, and a run of all ranks.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "compiler/torch_csv_check.hpp"

namespace fem::compiler {
namespace {

struct Message {
  bool forward;
  int stage;  // that receives it
  std::int32_t microbatch;
  friend bool operator==(const Message&, const Message&) = default;
};

struct Half {
  Message message;
  const TorchCell* cell;
};

struct Channel {
  std::vector<Half> sends, receives;
};

}  // namespace

void check_torch_channels(const TorchFile& file, const TorchShape& shape, TorchFaults& faults) {
  std::map<std::pair<int, int>, Channel> channels;  // by sender and receiver
  for (std::size_t r = 0; r < file.rows.size(); ++r) {
    for (const TorchCell& cell : file.rows[r].cells) {
      if (!is_message(cell.kind)) continue;
      const bool forward = cell.kind == CellKind::SendF || cell.kind == CellKind::RecvF;
      const bool send = is_send(cell.kind);
      const int other = cell.stage + (forward == send ? 1 : -1);
      const int peer = shape.rank[static_cast<std::size_t>(other)];
      const Half half{{forward, send ? other : cell.stage, cell.microbatch}, &cell};
      const int rank = static_cast<int>(r);
      if (send) {
        channels[{rank, peer}].sends.push_back(half);
      } else {
        channels[{peer, rank}].receives.push_back(half);
      }
    }
  }
  for (const auto& [ranks, channel] : channels) {
    for (std::size_t i = 0; i < channel.receives.size(); ++i) {
      if (channel.sends[i].message == channel.receives[i].message) continue;
      const auto row = static_cast<std::size_t>(ranks.second);
      const TorchRow& sender = file.rows[static_cast<std::size_t>(ranks.first)];
      faults.cell(row, file.rows[row].line, *channel.receives[i].cell,
                  fmt::format("receives out of turn: rank {} sends '{}' (its cell {}) first, and messages between two "
                              "ranks are matched by their order alone",
                              ranks.first, file.text(sender, *channel.sends[i].cell), channel.sends[i].cell->cell));
      break;
    }
  }
}

namespace {

// What others wait for.
enum Done : std::uint8_t { kForward, kBackward, kSentForward, kSentBackward, kDone };

struct Need {
  bool any = false;
  Done what = kForward;
  int stage = 0;
  bool same_step = false;  // a receive ends with its send
};

class Run {
 public:
  Run(const TorchFile& file, TorchShape& shape, TorchFaults& faults)
      : file_(file), shape_(shape), faults_(faults), next_(file.rows.size(), 0), time_(file.rows.size(), 0) {
    const std::size_t size = shape.rank.size() * static_cast<std::size_t>(shape.microbatches);
    for (auto& table : ends_) table.assign(size, 0);
  }

  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t r = 0; r < file_.rows.size(); ++r) {
        while (step(r)) progress = true;
      }
    }
    shape_.unit_steps = *std::ranges::max_element(time_);
    for (std::size_t r = 0; r < file_.rows.size(); ++r) {
      if (next_[r] < file_.rows[r].cells.size()) return report_circle(r);
    }
  }

 private:
  std::int64_t& end(Done what, int stage, std::int32_t microbatch) {
    return ends_[what][static_cast<std::size_t>(stage) * static_cast<std::size_t>(shape_.microbatches) +
                       static_cast<std::size_t>(microbatch)];
  }

  bool here(int stage, int other) const {
    return shape_.rank[static_cast<std::size_t>(stage)] == shape_.rank[static_cast<std::size_t>(other)];
  }

  Need need(const TorchCell& cell) const {
    const int last = shape_.stages() - 1;
    switch (cell.kind) {
      case CellKind::F:
        if (cell.stage == 0 || (file_.communication && !here(cell.stage, cell.stage - 1))) return {};
        return {true, kForward, cell.stage - 1, false};
      case CellKind::B:
      case CellKind::I:
        if (cell.stage == last || (file_.communication && !here(cell.stage, cell.stage + 1))) return {};
        return {true, kBackward, cell.stage + 1, false};
      case CellKind::RecvF:
        return {true, kSentForward, cell.stage - 1, true};
      case CellKind::RecvB:
        return {true, kSentBackward, cell.stage + 1, true};
      case CellKind::W:
      case CellKind::SendF:
      case CellKind::SendB:
      case CellKind::Unshard:
      case CellKind::Reshard:
      case CellKind::ReduceGrad:
        return {};
    }
    return {};
  }

  // The next operation or pair of the rank; false where it waits, or at the end.
  bool step(std::size_t r) {
    const std::vector<TorchCell>& cells = file_.rows[r].cells;
    const std::size_t i = next_[r];
    if (i == cells.size()) return false;
    const std::size_t count = cells[i].joined ? 2 : 1;
    const bool counts = is_pass(cells[i].kind) || is_message(cells[i].kind);
    std::int64_t time = time_[r] + counts;
    for (std::size_t k = i; k < i + count; ++k) {
      const Need needed = need(cells[k]);
      if (!needed.any) continue;
      const std::int64_t ready = end(needed.what, needed.stage, cells[k].microbatch);
      if (ready == 0) return false;
      time = std::max(time, ready + (needed.same_step ? 0 : 1));
    }
    for (std::size_t k = i; k < i + count; ++k) mark(cells[k], time);
    time_[r] = time;
    next_[r] = i + count;
    return true;
  }

  void mark(const TorchCell& cell, std::int64_t time) {
    switch (cell.kind) {
      case CellKind::F:
        end(kForward, cell.stage, cell.microbatch) = time;
        return;
      case CellKind::B:
      case CellKind::I:
        end(kBackward, cell.stage, cell.microbatch) = time;
        return;
      case CellKind::SendF:
        end(kSentForward, cell.stage, cell.microbatch) = time;
        return;
      case CellKind::SendB:
        end(kSentBackward, cell.stage, cell.microbatch) = time;
        return;
      case CellKind::W:
      case CellKind::RecvF:
      case CellKind::RecvB:
      case CellKind::Unshard:
      case CellKind::Reshard:
      case CellKind::ReduceGrad:
        return;
    }
  }

  // The operation of a blocked rank that waits, and what for.
  std::pair<const TorchCell*, Need> waiting(std::size_t r) {
    const TorchCell* cell = &file_.rows[r].cells[next_[r]];
    for (;; ++cell) {
      const Need needed = need(*cell);
      if (needed.any && end(needed.what, needed.stage, cell->microbatch) == 0) return {cell, needed};
    }
  }

  static bool makes(const TorchCell& cell, const Need& needed) {
    switch (needed.what) {
      case kForward:
        return cell.kind == CellKind::F;
      case kBackward:
        return cell.kind == CellKind::B || cell.kind == CellKind::I;
      case kSentForward:
        return cell.kind == CellKind::SendF;
      case kSentBackward:
        return cell.kind == CellKind::SendB;
      case kDone:
        break;
    }
    return false;
  }

  // Every blocked rank waits for another blocked one, or for itself: following that ends in a circle.
  void report_circle(std::size_t start) {
    std::vector<bool> seen(file_.rows.size(), false);
    const auto next = [&](std::size_t r) {
      return static_cast<std::size_t>(shape_.rank[static_cast<std::size_t>(waiting(r).second.stage)]);
    };
    while (!seen[start]) {
      seen[start] = true;
      start = next(start);
    }
    std::string text;
    std::size_t r = start;
    do {
      const auto [cell, needed] = waiting(r);
      const std::size_t q = next(r);
      const TorchRow& other = file_.rows[q];
      const auto made = std::ranges::find_if(other.cells, [&, c = cell, n = needed](const TorchCell& candidate) {
        return candidate.stage == n.stage && candidate.microbatch == c->microbatch && makes(candidate, n);
      });
      text += fmt::format("{}rank {} waits at '{}' (cell {}) for '{}' (cell {}) of rank {}", text.empty() ? "" : ", ",
                          r, file_.text(file_.rows[r], *cell), cell->cell, file_.text(other, *made), made->cell, q);
      r = q;
    } while (r != start);
    faults_.cell(start, file_.rows[start].line, *waiting(start).first,
                 "is in a circle of operations that wait for each other: " + text);
  }

  const TorchFile& file_;
  TorchShape& shape_;
  TorchFaults& faults_;
  std::vector<std::size_t> next_;                      // by rank: its next cell
  std::vector<std::int64_t> time_;                     // by rank: the end of what it did last
  std::array<std::vector<std::int64_t>, kDone> ends_;  // by stage and microbatch; 0: not done
};

}  // namespace

void check_torch_progress(const TorchFile& file, TorchShape& shape, TorchFaults& faults) {
  Run(file, shape, faults).run();
}

}  // namespace fem::compiler
