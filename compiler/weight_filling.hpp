// Weight gradients put anew into an order that keeps its forwards and input gradients.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/split_order.hpp"

namespace fem::compiler {

// As in the automatic schedule of arXiv 2401.10241, section 3.1: the ranks run their forwards and input gradients in
// the order of `rows`; a weight gradient runs where the next forward needs its memory, where it fits into a gap, where
// the gap is shorter but waiting would bring the rank's idle time above that of the idlest rank plus `slack`, and at
// the end. Oldest input gradient first. Empty where that exceeds the cap or blocks.
std::optional<StepRows> fill_weights(const StepRows& rows, const Placement& placement, std::int64_t m,
                                     const SearchCosts& costs, std::int64_t slack);

// The order of `rows`, or the best of fill_weights with several slacks where that has a shorter longest span. `rows`
// must fit into the cap and not block.
StepRows best_filling(StepRows rows, const Placement& placement, std::int64_t m, const SearchCosts& costs);

}  // namespace fem::compiler
