// Times of a pipeline's operations from the model's shapes, for schedules that are searched.
#pragma once

#include <optional>

#include "compiler/config.hpp"
#include "compiler/schedule.hpp"
#include "passes/profile.hpp"

namespace fem::compiler {

// Means over the stages, in millionths of a forward. With a profile its measurements before its estimates, and a
// transfer takes the link between neighbouring ranks; without one operations are counted and transfers are free.
PricedTimes price_times(const ir::Settings& settings, const Placement& placement,
                        const passes::HardwareProfile* profile);

// The machine that parallel.profile names; none where it is empty. False after a diagnosed error.
bool load_named_profile(const Configuration& configuration, std::optional<passes::HardwareProfile>& profile,
                        ir::DiagnosticSink& sink);

}  // namespace fem::compiler
