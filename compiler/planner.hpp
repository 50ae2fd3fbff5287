// From a configuration and a schedule to a plan at stage level.
#pragma once

#include <optional>

#include "compiler/config.hpp"
#include "compiler/schedule.hpp"
#include "ir/plan.hpp"

namespace fem::compiler {

// schedule.chunks, schedule.params and the batch applied to the schedule. Errors point at the configuration.
std::optional<ScheduleCase> bind_schedule(const Configuration& configuration, const Schedule& schedule,
                                          ir::DiagnosticSink& sink);

// The plan at Level::Stage, as docs/architecture.md writes the step down: program `train`, and `eval` where data.eval
// is set. All sizes are checked. Empty after diagnosed errors.
std::optional<ir::Plan> make_plan(const Configuration& configuration, const Schedule& schedule,
                                  ir::DiagnosticSink& sink);

}  // namespace fem::compiler
