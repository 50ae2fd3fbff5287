// Search for an order with a split backward that has the least stage span under a memory cap.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/order_improver.hpp"

namespace fem::compiler {

// The automatic schedule of Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 3.1, in the eight
// combinations of its choices, beside plain orders with lagging weight gradients (section 2.2); the best is improved
// by improve_order. One stage a rank. Deterministic.
// Empty when no order fits into the cap (a microbatch alone exceeds it).
std::optional<StepRows> search_zero_bubble(int p, std::int64_t m, const SearchCosts& costs, SearchBudget budget);

// The automatic schedule alone, with one combination of its choices:
//   late_first_backward  a warm-up forward is also added when it ends after the first backward could start
//   hold_forwards        a rank that is two forwards ahead leaves its forward out when the next rank is the later one
//   fill_small_gaps      a gap shorter than a weight gradient is filled even where it does not raise the largest bubble
struct SearchChoices {
  bool late_first_backward = false, hold_forwards = false, fill_small_gaps = false;
};
std::optional<StepRows> automatic_rows(int p, std::int64_t m, const SearchCosts& costs, SearchChoices choices);

}  // namespace fem::compiler
