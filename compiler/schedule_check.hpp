// Closed forms of a schedule file against the simulated order.
#pragma once

#include <span>

#include "compiler/schedule.hpp"

namespace fem::compiler {

// Times of a chunk's forward F, input gradient I and weight gradient W; a whole backward B takes I + W.
struct OrderCosts {
  int f = 1, i = 1, w = 1;
};

// What the order costs when communication is free.
struct OrderMeasures {
  std::int64_t makespan = 0, stage_span = 0, makespan_bubble = 0, stage_span_bubble = 0;
  std::vector<int> peak_in_flight;  // by rank, in chunks: +1 at F, -1 at B or W
};
std::optional<OrderMeasures> measure_order(const Order& order, const Placement& placement, std::int64_t m,
                                           const OrderCosts& costs, ir::DiagnosticSink& sink);

// Evaluates every `check` whose `when` holds against an order of `sizes`; a difference is an error at its `equals`.
// Adds the comparisons of each check to `compared`, one entry for each. False after an error.
bool check_closed_forms(const Schedule& schedule, const ScheduleCase& sizes, const Order& order,
                        const OrderCosts& costs, std::span<int> compared, ir::DiagnosticSink& sink);

// The same for the order that the schedule generates, whose conditions must hold for `sizes`. The number of
// comparisons, or nothing after an error.
std::optional<int> check_schedule(const Schedule& schedule, const ScheduleCase& sizes, const OrderCosts& costs,
                                  ir::DiagnosticSink& sink);

}  // namespace fem::compiler
