#include "compiler/weight_filling.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

namespace fem::compiler {
namespace {

constexpr std::int64_t kNotYet = -1;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

class Filling {
 public:
  Filling(const StepRows& rows, const Placement& placement, std::int64_t m, const SearchCosts& costs,
          std::int64_t slack)
      : placement_(placement), m_(m), costs_(costs), slack_(slack), ranks_(rows.size()), starts_(rows.size()) {
    for (auto& ends : ends_) ends.resize(static_cast<std::size_t>(placement.stages() * m), kNotYet);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::ranges::copy_if(rows[r], std::back_inserter(ranks_[r].left), [](Step s) { return s.kind != OpKind::W; });
      ranks_[r].done.resize(static_cast<std::size_t>(placement.slots()));
    }
  }

  std::optional<StepRows> run() {
    for (int r = 0; r < placement_.p; ++r) look_ahead(r);
    for (int r = earliest(); r >= 0; r = earliest()) {
      if (!step(r)) return std::nullopt;
    }
    StepRows rows;
    for (int r = 0; r < placement_.p; ++r) {
      if (at(r).next < at(r).left.size()) return std::nullopt;
      while (waiting(r)) put_weight(r);
      rows.push_back(std::move(at(r).row));
    }
    return rows;
  }

 private:
  struct Rank {
    StepRow left, row;
    std::size_t next = 0;                  // of `left`
    std::vector<std::array<int, 2>> done;  // [slot]: forwards, input gradients
    std::vector<std::uint8_t> inputs;      // slots of input gradients in their order
    std::size_t weights = 0;               // of these, how many have their weight gradient
    std::int64_t clock = 0, memory = 0, idle = 0;
  };

  Rank& at(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  bool waiting(int r) { return at(r).weights < at(r).inputs.size(); }
  std::int64_t& end(int direction, int stage, std::int64_t microbatch) {
    return ends_[direction][static_cast<std::size_t>(stage * m_ + microbatch)];
  }

  // When the data of the rank's next operation is here; kNotYet where that is not known.
  std::int64_t arrival(int r) {
    const Rank& rank = at(r);
    const Step step = rank.left[rank.next];
    const int direction = step.kind == OpKind::F ? 0 : 1, stage = placement_.stage(r, step.slot);
    const int microbatch = rank.done[step.slot][static_cast<std::size_t>(direction)];
    if (direction == 1 && microbatch >= rank.done[step.slot][0]) return kNotYet;
    const int before = direction == 0 ? placement_.previous(stage) : placement_.next(stage);
    if (before < 0) return 0;
    const std::int64_t made = end(direction, before, microbatch);
    return made == kNotYet || placement_.rank(before) == r ? made : made + costs_.transfer;
  }

  // When the rank's next operation can start; kNever where that is not known or none is left.
  void look_ahead(int r) {
    const Rank& rank = at(r);
    const std::int64_t arrives = rank.next < rank.left.size() ? arrival(r) : kNotYet;
    starts_[static_cast<std::size_t>(r)] = arrives == kNotYet ? kNever : std::max(arrives, rank.clock);
  }

  // The rank whose next operation can start first, or -1.
  int earliest() const {
    const auto first = std::ranges::min_element(starts_);
    return *first == kNever ? -1 : static_cast<int>(first - starts_.begin());
  }

  void put_weight(int r) {
    Rank& rank = at(r);
    rank.row.push_back({OpKind::W, rank.inputs[rank.weights++]});
    rank.clock += costs_.weight;
    rank.memory += costs_.weight_memory;
  }

  void fill_gap(int r, std::int64_t arrives) {
    Rank& rank = at(r);
    while (waiting(r) && rank.clock + costs_.weight <= arrives) put_weight(r);
    if (!waiting(r) || arrives <= rank.clock) return;
    const std::int64_t largest = std::ranges::max_element(ranks_, {}, &Rank::idle)->idle;
    if (rank.idle + (arrives - rank.clock) > largest + slack_) put_weight(r);
  }

  // The rank's next forward or input gradient; false where the cap has no room for it.
  bool step(int r) {
    Rank& rank = at(r);
    const Step step = rank.left[rank.next];
    const int direction = step.kind == OpKind::F ? 0 : 1;
    const std::int64_t arrives = arrival(r);
    while (rank.memory + costs_.memory(step.kind) > costs_.cap) {
      if (!waiting(r)) return false;
      put_weight(r);
    }
    fill_gap(r, arrives);
    ++rank.next;
    const std::int64_t start = std::max(rank.clock, arrives);
    if (!rank.row.empty()) rank.idle += start - rank.clock;
    rank.clock = start + costs_.time(step.kind);
    rank.memory += costs_.memory(step.kind);
    rank.row.push_back(step);
    const int microbatch = rank.done[step.slot][static_cast<std::size_t>(direction)]++;
    const int stage = placement_.stage(r, step.slot);
    end(direction, stage, microbatch) = rank.clock;
    if (direction == 1) rank.inputs.push_back(step.slot);
    look_ahead(r);
    const int consumer = direction == 0 ? placement_.next(stage) : placement_.previous(stage);
    if (consumer >= 0) look_ahead(placement_.rank(consumer));
    return true;
  }

  const Placement& placement_;
  std::int64_t m_;
  SearchCosts costs_;
  std::int64_t slack_;
  std::vector<Rank> ranks_;
  std::vector<std::int64_t> starts_;   // of each rank's next operation
  std::vector<std::int64_t> ends_[2];  // of forwards and input gradients: [stage][microbatch]
};

}  // namespace

std::optional<StepRows> fill_weights(const StepRows& rows, const Placement& placement, std::int64_t m,
                                     const SearchCosts& costs, std::int64_t slack) {
  return Filling(rows, placement, m, costs, slack).run();
}

StepRows best_filling(StepRows rows, const Placement& placement, std::int64_t m, const SearchCosts& costs) {
  SpanEvaluator evaluator(placement, m, costs);
  const auto start = evaluator.spans(rows);
  if (!start) return rows;
  std::int64_t longest = start->longest;
  const std::int64_t never = start->longest;  // more than any gap
  StepRows best = rows;
  for (const std::int64_t slack :
       {std::int64_t{0}, -costs.weight / 2, -costs.weight, costs.weight / 2, -never, never}) {
    auto filled = fill_weights(rows, placement, m, costs, slack);
    const auto spans = filled ? evaluator.spans(*filled) : std::nullopt;
    if (!spans || spans->longest >= longest) continue;
    longest = spans->longest;
    best = std::move(*filled);
  }
  return best;
}

}  // namespace fem::compiler
