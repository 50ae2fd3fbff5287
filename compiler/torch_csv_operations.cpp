// Nothing missing, nothing twice, and the order of what one rank does with one microbatch on one stage.
#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>

#include <fmt/format.h>

#include "compiler/torch_csv_check.hpp"

namespace fem::compiler {
namespace {

struct Entry {
  const TorchCell* cell;
  std::size_t row;
};

using Entries = std::span<const Entry>;

std::int32_t microbatch(const Entry& entry) { return entry.cell->microbatch; }

// The entries up to the first that differs by `key`, taken off the front.
template <typename Key>
Entries take_group(Entries& rest, Key key) {
  std::size_t n = 1;
  while (n < rest.size() && key(rest[n]) == key(rest[0])) ++n;
  const Entries group = rest.first(n);
  rest = rest.subspan(n);
  return group;
}

std::string range_text(std::int64_t first, std::int64_t last) {
  return first == last ? fmt::format("microbatch {}", first) : fmt::format("microbatches {} to {}", first, last);
}

class Operations {
 public:
  Operations(const TorchFile& file, TorchShape& shape, TorchFaults& faults)
      : file_(file), shape_(shape), faults_(faults) {
    for (std::size_t r = 0; r < file.rows.size(); ++r) {
      for (const TorchCell& cell : file.rows[r].cells) {
        if (cell.microbatch >= 0) entries_.push_back({&cell, r});
      }
    }
    std::ranges::sort(entries_, {}, [](const Entry& e) {
      return std::tuple(e.cell->stage, e.cell->microbatch, e.cell->kind, e.cell->cell, e.cell->column);
    });
  }

  void run() {
    shape_.microbatches = most_common_count();
    if (shape_.microbatches == 0) return faults_.file("most stages run no microbatch forward (type F)");
    for (Entries rest = entries_; !rest.empty() && !faults_.full();) {
      check_stage(take_group(rest, [](const Entry& e) { return e.cell->stage; }));
    }
  }

 private:
  using Kinds = std::array<const Entry*, kCellKinds>;

  void fault(const Entry& entry, std::string message) {
    faults_.cell(entry.row, file_.rows[entry.row].line, *entry.cell, std::move(message));
  }

  // The number of different microbatches that most stages run forward; the larger one where two are as common.
  std::int64_t most_common_count() const {
    std::map<std::int64_t, int> stages;
    for (Entries rest = entries_; !rest.empty();) {
      Entries stage = take_group(rest, [](const Entry& e) { return e.cell->stage; });
      std::int64_t count = 0;
      while (!stage.empty()) {
        const Entries group = take_group(stage, microbatch);
        count += std::ranges::any_of(group, [](const Entry& e) { return e.cell->kind == CellKind::F; });
      }
      ++stages[count];
    }
    const auto most =
        std::ranges::max_element(stages, {}, [](const auto& item) { return std::pair(item.second, item.first); });
    return most->first;
  }

  void check_stage(Entries stage) {
    if (report_shift(stage)) return;
    std::int64_t expected = 0;
    const Entry& any = stage.front();
    while (!stage.empty() && !faults_.full()) {
      const Entries group = take_group(stage, microbatch);
      const std::int64_t m = microbatch(group.front());
      if (m >= shape_.microbatches) {
        fault(group.front(), fmt::format("microbatch {} is out of range: the other stages run {} microbatches, 0 to {}",
                                         m, shape_.microbatches, shape_.microbatches - 1));
        continue;
      }
      report_missing(any, expected, m);
      expected = m + 1;
      check_group(group);
    }
    report_missing(any, expected, shape_.microbatches);
  }

  void report_missing(const Entry& any, std::int64_t first, std::int64_t end) {
    if (first >= end) return;
    faults_.row(any.row, file_.rows[any.row].line,
                fmt::format("stage {} does nothing with {}: it needs a forward and a backward of each of the {} "
                            "microbatches",
                            any.cell->stage, range_text(first, end - 1), shape_.microbatches));
  }

  // Forwards 1 to m beside backwards 0 to m - 1: torch's Schedule1F1B._get_pipeline_order counts so on the last rank.
  bool report_shift(Entries stage) {
    const std::int64_t m = shape_.microbatches;
    std::int64_t forwards = 0, backwards = 0;
    const Entry* first = nullptr;
    for (Entries rest = stage; !rest.empty();) {
      const Entries group = take_group(rest, microbatch);
      for (const Entry& entry : group) {
        const std::int64_t at = microbatch(entry);
        if (entry.cell->kind == CellKind::F) {
          if (at < 1 || at > m) return false;
          ++forwards;
          if (!first) first = &entry;
        } else if (entry.cell->kind == CellKind::B || entry.cell->kind == CellKind::I) {
          if (at >= m) return false;
          ++backwards;
        }
      }
    }
    if (forwards != m || backwards != m) return false;
    fault(*first, fmt::format("stage {} runs forwards 1 to {} but backwards 0 to {}: its forwards are shifted by one, "
                              "as torch's export of 1F1B does on the last rank; subtract 1 from the microbatch of "
                              "each forward of this stage",
                              first->cell->stage, m, m - 1));
    return true;
  }

  // All cells of one stage and microbatch, sorted by kind and place.
  void check_group(Entries group) {
    Kinds kinds{};
    bool twice = false;
    for (const Entry& entry : group) {
      const Entry*& known = kinds[static_cast<std::size_t>(entry.cell->kind)];
      if (known) {
        fault(entry, fmt::format("stands a second time: first in cell {} of the row", known->cell->cell));
        twice = true;
      } else {
        known = &entry;
      }
    }
    if (twice || !check_passes(kinds, group.front())) return;
    check_messages(kinds);
  }

  static const Entry* at(const Kinds& kinds, CellKind kind) { return kinds[static_cast<std::size_t>(kind)]; }

  bool check_passes(const Kinds& kinds, const Entry& any) {
    const Entry *f = at(kinds, CellKind::F), *b = at(kinds, CellKind::B), *i = at(kinds, CellKind::I),
                *w = at(kinds, CellKind::W);
    const auto m = any.cell->microbatch;
    const auto s = any.cell->stage;
    const auto bad = [&](const Entry& entry, std::string message) {
      fault(entry, std::move(message));
      return false;
    };
    if (!f) return bad(any, fmt::format("stage {} has no forward of microbatch {}", s, m));
    if (b && (i || w)) {
      return bad(*b,
                 fmt::format("microbatch {} of stage {} runs backward twice, as a whole (B) and in parts ({} in cell "
                             "{}): its gradients would be added twice",
                             m, s, i ? "I" : "W", (i ? i : w)->cell->cell));
    }
    if (!b && !i && !w)
      return bad(*f, fmt::format("has no backward: stage {} needs B, or I and W, of microbatch {}", s, m));
    if (i && !w) return bad(*i, fmt::format("has no W: the weight gradients of microbatch {} would be left out", m));
    if (w && !i) return bad(*w, fmt::format("has no I: W takes up what the input gradient of microbatch {} left", m));
    const Entry& back = b ? *b : *i;
    if (back.cell->cell <= f->cell->cell) {
      return bad(back, fmt::format("stands before its forward, which is in cell {}", f->cell->cell));
    }
    if (w && w->cell->cell <= i->cell->cell) {
      return bad(*w, fmt::format("stands before its input gradient I, which is in cell {}", i->cell->cell));
    }
    return true;
  }

  bool crosses(int stage, int other) const {
    if (other < 0 || other >= shape_.stages()) return false;
    return shape_.rank[static_cast<std::size_t>(stage)] != shape_.rank[static_cast<std::size_t>(other)];
  }

  void check_messages(const Kinds& kinds) {
    if (!file_.communication) return;
    const Entry& f = *at(kinds, CellKind::F);
    const Entry& back = at(kinds, CellKind::B) ? *at(kinds, CellKind::B) : *at(kinds, CellKind::I);
    const int s = f.cell->stage;
    check_message(kinds, CellKind::RecvF, f, s - 1);
    check_message(kinds, CellKind::SendF, f, s + 1);
    check_message(kinds, CellKind::RecvB, back, s + 1);
    check_message(kinds, CellKind::SendB, back, s - 1);
  }

  void check_message(const Kinds& kinds, CellKind kind, const Entry& pass, int other) {
    const Entry* message = at(kinds, kind);
    const int s = pass.cell->stage;
    if (!crosses(s, other)) {
      if (!message) return;
      const bool exists = other >= 0 && other < shape_.stages();
      return fault(*message, exists ? fmt::format("stages {} and {} lie on the same rank: the tensor is passed on in "
                                                  "place, without a message",
                                                  s, other)
                                    : fmt::format("there is no stage {} {}", other < 0 ? "before" : "after", s));
    }
    if (!message) {
      return fault(pass, fmt::format("has no {}{}{}: stage {} lies on rank {}", s, name(kind), pass.cell->microbatch,
                                     other, shape_.rank[static_cast<std::size_t>(other)]));
    }
    const bool late = is_send(kind) ? message->cell->cell <= pass.cell->cell : message->cell->cell >= pass.cell->cell;
    if (!late) return;
    fault(*message,
          fmt::format("stands {} the operation that {} it, which is in cell {}", is_send(kind) ? "before" : "after",
                      is_send(kind) ? "makes" : "needs", pass.cell->cell));
  }

  const TorchFile& file_;
  TorchShape& shape_;
  TorchFaults& faults_;
  std::vector<Entry> entries_;
};

}  // namespace

void check_torch_operations(const TorchFile& file, TorchShape& shape, TorchFaults& faults) {
  Operations(file, shape, faults).run();
}

}  // namespace fem::compiler
