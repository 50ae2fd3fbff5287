#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/gantt.hpp"
#include "passes/simulate.hpp"

namespace fem::compiler {
namespace {

std::string span_line(std::string_view name, double span, const passes::Bubble& bubble) {
  return fmt::format("{:<11} {:g}, bubble {:g}: {:.2f}% over ideal time, {:.2f}% over total time\n", name, span,
                     bubble.time, 100 * bubble.over_ideal, 100 * bubble.over_total);
}

std::string figures(const passes::Simulation& simulation) {
  std::string text = fmt::format("ideal       {:g} (the busiest rank's work)\n", simulation.ideal);
  text += span_line("makespan", simulation.makespan, simulation.makespan_bubble());
  text += span_line("stage span", simulation.stage_span, simulation.stage_span_bubble());
  for (std::size_t r = 0; r < simulation.ranks.size(); ++r) {
    const passes::RankTimes& rank = simulation.ranks[r];
    text += fmt::format("rank {:<6} busy {:g}, waiting {:g}, at most {} in flight\n", r, rank.busy, rank.waiting,
                        rank.peak_in_flight);
  }
  return text;
}

}  // namespace

int timeline_command(const TimelineArguments& arguments, Streams streams) {
  const auto file = read_plan_file(arguments.plan, streams);
  if (!file) return kDiagnosed;
  const ir::Plan& plan = file->plan;
  ir::DiagnosticSink sink;
  const ir::Program* program = plan.find(arguments.program);
  if (!program) {
    std::vector<std::string_view> names;
    for (const ir::Program& p : plan.programs) names.push_back(p.name);
    sink.error({"--program", 0, 0}, fmt::format("the plan has no program '{}'{}", arguments.program,
                                                ir::did_you_mean(arguments.program, names)));
    return report(sink, streams);
  }
  if (arguments.rendezvous && plan.level < ir::Level::Communication) {
    sink.error({"--rendezvous", 0, 0}, "the plan is at stage level, its sends and receives are not in place");
    return report(sink, streams);
  }
  const passes::UnitCosts costs(arguments.forward, arguments.input, arguments.weight);
  const auto mode = arguments.rendezvous ? passes::Communication::Rendezvous : passes::Communication::Asynchronous;
  const auto simulation = passes::simulate(plan, *program, costs, sink, {mode});
  if (!simulation) return report(sink, streams);
  streams.out << fmt::format("program {}: {} ranks, {} microbatches; F={} B={} (I={}, W={}), communication {}\n",
                             program->name, program->ranks.size(), program->microbatches, arguments.forward,
                             arguments.input + arguments.weight, arguments.input, arguments.weight,
                             arguments.rendezvous ? "takes no time but both sides wait for each other" : "is free")
              << gantt(plan, *program, *simulation, arguments.width) << figures(*simulation);
  return finish_output(streams);
}

}  // namespace fem::compiler
