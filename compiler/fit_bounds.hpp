// What a step takes at least, before anything is planned. Every bound holds for any order of a rank's actions and for
// any lanes, so that what it rules out is ruled out for good.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/placement.hpp"
#include "ir/plan.hpp"
#include "passes/cost_model.hpp"

namespace fem::compiler {

// Pipeline ranks of a plan that has stages and no program.
struct StepBound {
  const ir::Plan& stages;  // and the settings
  const Placement& placement;
  std::int64_t microbatches;
  bool split;  // weight gradients may come later than input gradients

  // Seconds. A rank starts when the first forward has come down to it; it runs its forwards, backwards and recomputes;
  // after its last weight gradients the last of its stages is reduced, and, in a schedule of whole backwards, the last
  // gradient goes up to the first stage; then every rank has the norm and updates.
  double seconds(const passes::PricedCosts& costs) const;
};

// Bytes of the rank with most parameters, gradients and optimizer state; what its actions hold comes on top.
std::int64_t state_bytes(const ir::Plan& stages);

}  // namespace fem::compiler
