// Orders of a plain pipeline with a split backward, one stage a rank, as sequences of kinds: microbatches ascend per
// kind.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/order.hpp"

namespace fem::compiler {

// What the search knows of a pipeline: times in one unit, memory in another.
struct SearchCosts {
  std::int64_t forward = 1, input = 1, weight = 1;  // time of F, I, W on a rank
  std::int64_t transfer = 0;                        // from a rank to the next
  // change of a rank's memory when F starts, I ends, W ends
  std::int64_t forward_memory = 1, input_memory = 0, weight_memory = -1;
  std::int64_t cap = 1;  // of a rank's memory at any time

  std::int64_t time(OpKind kind) const;
  std::int64_t memory(OpKind kind) const;
};

using KindRow = std::vector<OpKind>;  // F, I and W only
using KindRows = std::vector<KindRow>;

// How long the ranks are at it: from first start to last end of each.
struct Spans {
  std::int64_t longest = 0;  // the stage span of arXiv 2401.10241
  std::int64_t total = 0;    // of all ranks
  friend auto operator<=>(const Spans&, const Spans&) = default;
};

// Runs rows eagerly; empty when the ranks block each other. Linear in the number of operations; keeps its buffers
// between calls.
class SpanEvaluator {
 public:
  SpanEvaluator(int p, std::int64_t m, const SearchCosts& costs);
  std::optional<Spans> spans(const KindRows& rows);

 private:
  void run(const KindRows& rows, std::size_t rank);
  std::int64_t& end(bool forward, std::size_t rank, std::int64_t i) {
    return ends_[forward][rank * static_cast<std::size_t>(m_) + static_cast<std::size_t>(i)];
  }

  std::int64_t m_;
  SearchCosts costs_;
  std::vector<std::int64_t> ends_[2];  // of inputs, of forwards: [rank][microbatch]; -1 before
  struct Rank {
    std::size_t next = 0;
    std::int64_t clock = 0, first_start = -1;
    std::int64_t done[kOpKinds] = {};
  };
  std::vector<Rank> ranks_;
  std::vector<std::size_t> runnable_;
};

// The largest memory of the row at any time.
std::int64_t peak_memory(const KindRow& row, const SearchCosts& costs);

// Forwards before the first backward, and weight gradients `lag` input gradients behind.
KindRow lagged_row(std::int64_t m, std::int64_t warm_up, std::int64_t lag);

Order to_order(const KindRows& rows);

}  // namespace fem::compiler
