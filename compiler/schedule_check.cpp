#include "compiler/schedule_check.hpp"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "compiler/programs.hpp"
#include "passes/simulate.hpp"

namespace fem::compiler {
namespace {

// A plan whose parts are one block each, and its one program: all that the simulator needs.
ir::Plan plain_plan(const Order& order, const Placement& placement, std::int64_t m) {
  ir::Plan plan;
  const int parts = placement.p * placement.v;
  plan.settings.model.layers = parts;
  plan.settings.parallel.pp = placement.p;
  plan.stages = make_stages(placement, std::vector<std::int64_t>(static_cast<std::size_t>(parts), 1));
  plan.programs.push_back(train_program(order, placement, m, false));
  return plan;
}

std::int64_t slots(double time) { return std::llround(time); }

std::int64_t measured(Measure measure, const OrderMeasures& measures, std::size_t rank) {
  switch (measure) {
    case Measure::PeakInFlight:
      return measures.peak_in_flight[rank];
    case Measure::Makespan:
      return measures.makespan;
    case Measure::StageSpan:
      return measures.stage_span;
    case Measure::MakespanBubble:
      return measures.makespan_bubble;
    case Measure::StageSpanBubble:
      return measures.stage_span_bubble;
  }
  return 0;
}

}  // namespace

std::optional<OrderMeasures> measure_order(const Order& order, const Placement& placement, std::int64_t m,
                                           const OrderCosts& costs, ir::DiagnosticSink& sink) {
  const ir::Plan plan = plain_plan(order, placement, m);
  const passes::UnitCosts units(costs.f, costs.i, costs.w);
  const auto result = passes::simulate(plan, plan.programs.front(), units, sink, {passes::Communication::Asynchronous});
  if (!result) return std::nullopt;
  OrderMeasures measures;
  measures.makespan = slots(result->makespan);
  measures.stage_span = slots(result->stage_span);
  measures.makespan_bubble = slots(result->makespan_bubble().time);
  measures.stage_span_bubble = slots(result->stage_span_bubble().time);
  for (const passes::RankTimes& rank : result->ranks) measures.peak_in_flight.push_back(rank.peak_in_flight);
  return measures;
}

bool check_closed_forms(const Schedule& schedule, const ScheduleCase& sizes, const Order& order,
                        const OrderCosts& costs, std::span<int> compared, ir::DiagnosticSink& sink) {
  const auto scopes = rank_scopes(schedule, sizes, sink);
  const auto measures = scopes ? measure_order(order, schedule.place(sizes), sizes.m, costs, sink) : std::nullopt;
  if (!measures) return false;
  const int errors = sink.errors();
  for (std::size_t i = 0; i < schedule.check.size(); ++i) {
    const ScheduleCheck& check = schedule.check[i];
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
      std::vector<std::int64_t> scope = (*scopes)[rank];
      scope.insert(scope.end(), {costs.f, costs.i + costs.w, costs.i, costs.w});
      if (check.when) {
        const auto holds = check.when->evaluate(scope, sink);
        if (!holds) return false;
        if (!*holds) continue;
      }
      const auto expected = check.equals.evaluate(scope, sink);
      if (!expected) return false;
      const std::int64_t found = measured(check.what, *measures, rank);
      ++compared[i];
      if (*expected == found) continue;
      check.equals.error(
          sink, fmt::format("{} of rank {} is {}, not {} (p={}, m={}, v={}, F={}, I={}, W={})", name(check.what), rank,
                            found, *expected, sizes.p, sizes.m, sizes.v, costs.f, costs.i, costs.w));
      break;
    }
  }
  return sink.errors() == errors;
}

std::optional<int> check_schedule(const Schedule& schedule, const ScheduleCase& sizes, const OrderCosts& costs,
                                  ir::DiagnosticSink& sink) {
  const auto order = generate_order(schedule, sizes, sink);
  std::vector<int> compared(schedule.check.size(), 0);
  if (!order || !check_closed_forms(schedule, sizes, *order, costs, compared, sink)) return std::nullopt;
  return std::accumulate(compared.begin(), compared.end(), 0);
}

}  // namespace fem::compiler
