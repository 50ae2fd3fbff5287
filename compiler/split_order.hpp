// Orders of a pipeline with a split backward as sequences of kinds and slots: microbatches ascend per kind and slot.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/order.hpp"

namespace fem::compiler {

// What the search knows of a pipeline: times in one unit, memory in another.
struct SearchCosts {
  std::int64_t forward = 1, input = 1, weight = 1;  // time of F, I, W of one stage
  std::int64_t transfer = 0;                        // from a rank to the next
  // change of a rank's memory when F starts, I ends, W ends
  std::int64_t forward_memory = 1, input_memory = 0, weight_memory = -1;
  std::int64_t cap = 1;  // of a rank's memory at any time

  std::int64_t time(OpKind kind) const;
  std::int64_t memory(OpKind kind) const;
};

// The next operation of that kind and slot (chunk) of a rank. F, I and W only.
struct Step {
  OpKind kind = OpKind::F;
  std::uint8_t slot = 0;
  friend bool operator==(const Step&, const Step&) = default;
};
using StepRow = std::vector<Step>;
using StepRows = std::vector<StepRow>;  // by rank

// How long the ranks are at it: from first start to last end of each.
struct Spans {
  std::int64_t longest = 0;  // the stage span of arXiv 2401.10241
  std::int64_t total = 0;    // of all ranks
  friend auto operator<=>(const Spans&, const Spans&) = default;
};

// Runs rows eagerly; empty when the ranks block each other or one is at it for longer than `limit`. Linear in the
// number of operations; keeps its buffers between calls. The placement is one with a single direction.
class SpanEvaluator {
 public:
  SpanEvaluator(const Placement& placement, std::int64_t m, const SearchCosts& costs);
  std::optional<Spans> spans(const StepRows& rows, std::int64_t limit = INT64_MAX);

 private:
  // Where a stage's inputs (0) and input gradients (1) come from and go to; -1: nowhere. Indices of ends_ and ranks.
  struct Route {
    std::int64_t from[2] = {-1, -1}, own[2] = {}, transfer[2] = {};
    int to[2] = {-1, -1};
  };
  struct Rank {
    std::size_t next = 0;
    std::int64_t clock = 0, first_start = -1, awaits = -1, bubble = 0;
  };
  // Until it waits; false where it waited for longer than `limit` in all.
  bool run(const StepRows& rows, int rank, std::int64_t limit);

  std::size_t slots_;
  std::int64_t work_;  // of a rank
  std::int64_t times_[kOpKinds];
  std::vector<Route> routes_;         // [rank][slot]
  std::vector<std::int64_t> ends_;    // [direction][stage][microbatch]; -1 before
  std::vector<std::int64_t> counts_;  // [rank][slot][kind]
  std::vector<Rank> ranks_;
  std::vector<int> runnable_;
};

// The largest memory of the row at any time.
std::int64_t peak_memory(const StepRow& row, const SearchCosts& costs);

bool fits_into_cap(const StepRows& rows, const SearchCosts& costs);

// Forwards before the first backward, and weight gradients `lag` input gradients behind; one slot.
StepRow lagged_row(std::int64_t m, std::int64_t warm_up, std::int64_t lag);

// Between steps and operations. Empty where an operation is neither F, I nor W, stands in a pair, or comes before one
// with a smaller microbatch of its kind and stage.
Order to_order(const StepRows& rows, const Placement& placement);
std::optional<StepRows> to_steps(const Order& order, const Placement& placement);

}  // namespace fem::compiler
