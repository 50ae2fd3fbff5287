#include "compiler/zero_bubble_search.hpp"

#include <algorithm>

namespace fem::compiler {
namespace {

std::vector<StepRows> candidates(int p, std::int64_t m, const SearchCosts& costs) {
  std::vector<StepRows> result;
  for (const bool late : {false, true}) {
    for (const bool hold : {false, true}) {
      for (const bool fill : {false, true}) {
        if (auto rows = automatic_rows(p, m, costs, {late, hold, fill})) result.push_back(std::move(*rows));
      }
    }
  }
  // Warm-ups of so many forwards per following rank, weight gradients so many input gradients late per preceding one.
  for (const auto& [warm_up, lag] : {std::pair{1, 0}, {1, 1}, {2, 2}, {2, 1}}) {
    StepRows rows;
    for (int r = 0; r < p; ++r) rows.push_back(lagged_row(m, warm_up * (p - 1 - r), lag * r));
    result.push_back(std::move(rows));
  }
  return result;
}

}  // namespace

std::optional<StepRows> search_zero_bubble(int p, std::int64_t m, const SearchCosts& costs, SearchBudget budget) {
  const Placement placement{PlacementKind::Loop, p, 1};
  SpanEvaluator evaluator(placement, m, costs);
  std::optional<StepRows> best;
  Spans best_spans;
  for (StepRows& rows : candidates(p, m, costs)) {
    if (!fits_into_cap(rows, costs)) continue;
    const auto spans = evaluator.spans(rows);
    if (!spans || (best && *spans >= best_spans)) continue;
    best = std::move(rows);
    best_spans = *spans;
  }
  if (!best) return std::nullopt;
  return improve_order(std::move(*best), placement, m, costs, budget);
}

}  // namespace fem::compiler
