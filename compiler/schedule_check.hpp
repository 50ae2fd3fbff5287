// Closed forms of a schedule file against the simulated order.
#pragma once

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

// Evaluates every `check` whose `when` holds; a difference is an error at its `equals`. The number of comparisons that
// were made, or nothing after an error. The schedule's conditions must hold for `sizes`.
std::optional<int> check_schedule(const Schedule& schedule, const ScheduleCase& sizes, const OrderCosts& costs,
                                  ir::DiagnosticSink& sink);

}  // namespace fem::compiler
