// Local search on an order with a split backward.
#pragma once

#include <cstdint>

#include "compiler/split_order.hpp"

namespace fem::compiler {

struct SearchBudget {
  std::int64_t iterations = 1000;  // moves tried
  std::uint64_t seed = 1;
};

// Late acceptance hill climbing (Burke and Bykov 2017): an operation moves within its row, and a move is kept when the
// result is no worse than the order now or than the one some moves ago. The best order found: its longest span, then
// the sum of spans, is never above that of `rows`, which must fit into the cap and not block. Deterministic.
StepRows improve_order(StepRows rows, const Placement& placement, std::int64_t m, const SearchCosts& costs,
                       SearchBudget budget);

}  // namespace fem::compiler
