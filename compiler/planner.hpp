// From a configuration and a schedule to a plan at stage level.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "compiler/config.hpp"
#include "compiler/schedule.hpp"
#include "ir/plan.hpp"

namespace fem::compiler {

// Values of schedule.params by the schedule's parameters; empty where one was not given. Errors point at the
// configuration.
using GivenParameters = std::vector<std::optional<std::int64_t>>;
std::optional<GivenParameters> read_parameters(const Configuration& configuration, const Schedule& schedule,
                                               ir::DiagnosticSink& sink);

// schedule.chunks, schedule.params and the batch applied to the schedule. Errors point at the configuration.
std::optional<ScheduleCase> bind_schedule(const Configuration& configuration, const Schedule& schedule,
                                          ir::DiagnosticSink& sink);

// The plan of an order at Level::Stage: program `train`, and `eval` where data.eval is set. `blocks` as make_stages.
ir::Plan plan_of_order(const ir::Settings& settings, const Order& order, const Placement& placement, std::int64_t m,
                       std::span<const std::int64_t> blocks);

// The plan at Level::Stage, as docs/architecture.md writes the step down. All sizes are checked. Empty after diagnosed
// errors.
std::optional<ir::Plan> make_plan(const Configuration& configuration, const Schedule& schedule,
                                  ir::DiagnosticSink& sink);

}  // namespace fem::compiler
