// Dividing the model over the stages by what its units cost.
#pragma once

#include <optional>
#include <vector>

#include "compiler/config.hpp"
#include "compiler/placement.hpp"
#include "ir/plan.hpp"
#include "passes/profile.hpp"

namespace fem::compiler {

// What units take for one microbatch, forward and backward, in any unit. `block` is at least 1, the others at least 0.
struct DivisionCosts {
  std::int64_t block = 1, embedding = 0, head = 0;
};

// In millionths of a block: seconds of the profile (its measurements of units before its estimates; measurements of
// whole stages belong to one division and say nothing about another), or operations where there is none.
DivisionCosts division_costs(const ir::Settings& settings, const passes::HardwareProfile* profile);

// Blocks of every part of the model, such that the largest sum over the stages of a rank is least; of those divisions,
// the one whose largest stage is least; of those, the one with the least sum of squared stage costs, so that what the
// maximum leaves open is even; and of equals the one with more in the middle. Exact. The first and the last part may go
// without a block, no other; `layers` must suffice for that.
std::vector<std::int64_t> divide_by_cost(std::int64_t layers, const Placement& placement, const DivisionCosts& costs);

// Blocks of every part as the configuration wants it: parallel.layers_per_stage, or parallel.division. Empty after
// diagnosed errors.
std::optional<std::vector<std::int64_t>> divide_model(const Configuration& configuration, const Placement& placement,
                                                      ir::DiagnosticSink& sink);

// Arithmetic of one microbatch on every pipeline rank, as shares of the whole.
std::vector<double> arithmetic_shares(const ir::Plan& plan);

}  // namespace fem::compiler
