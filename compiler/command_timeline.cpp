#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/forecast.hpp"
#include "compiler/gantt.hpp"
#include "compiler/profile_reader.hpp"
#include "compiler/timeline_html.hpp"
#include "compiler/timeline_trace.hpp"

namespace fem::compiler {
namespace {

// A program that has been run on paper, in slots or, on a machine, in seconds.
struct Timeline {
  const ir::Plan& plan;
  const ir::Program& program;
  passes::Simulation simulation;
  bool seconds;
  bool lanes;  // each lane of a rank was simulated by itself

  std::string time(double t) const { return seconds ? seconds_text(t) : fmt::format("{:g}", t); }
};

std::string span_line(const Timeline& timeline, std::string_view name, double span, const passes::Bubble& bubble) {
  return fmt::format("{:<11} {}, bubble {}: {:.2f}% over ideal time, {:.2f}% over total time", name,
                     timeline.time(span), timeline.time(bubble.time), 100 * bubble.over_ideal,
                     100 * bubble.over_total);
}

// The lines below the chart that speak of all ranks.
std::vector<std::string> figures(const Timeline& timeline) {
  const passes::Simulation& simulation = timeline.simulation;
  return {fmt::format("ideal       {} (the busiest rank's work)", timeline.time(simulation.ideal)),
          span_line(timeline, "makespan", simulation.makespan, simulation.makespan_bubble()),
          span_line(timeline, "stage span", simulation.stage_span, simulation.stage_span_bubble())};
}

std::string rank_lines(const Timeline& timeline) {
  std::string text;
  for (std::size_t r = 0; r < timeline.simulation.ranks.size(); ++r) {
    const passes::RankTimes& rank = timeline.simulation.ranks[r];
    text += fmt::format("rank {:<6} busy {}, waiting {}, {}at most {} in flight\n", r, timeline.time(rank.busy),
                        timeline.time(rank.waiting),
                        timeline.lanes ? fmt::format("{} beside communication, ", timeline.time(rank.overlap)) : "",
                        rank.peak_in_flight);
  }
  return text;
}

std::string heading(const TimelineArguments& arguments, const Timeline& timeline, std::string_view machine) {
  const ir::Program& program = timeline.program;
  const std::string costs = timeline.seconds
                                ? fmt::format("on {}", machine)
                                : fmt::format("F={} B={} (I={}, W={})", arguments.forward,
                                              arguments.input + arguments.weight, arguments.input, arguments.weight);
  const std::string_view communication =
      !arguments.rendezvous ? (timeline.seconds ? "holds up no rank" : "is free")
      : timeline.seconds    ? "holds up both sides"
                            : "takes no time but both sides wait for each other";
  return fmt::format("program {}: {} ranks, {} microbatches; {}, communication {}", program.name,
                     program.ranks.size(), program.microbatches, costs, communication);
}

// A chart has one line a rank and `width` columns; seconds become columns.
std::string chart(const Timeline& timeline, int width) {
  if (!timeline.seconds) return gantt(timeline.plan, timeline.program, timeline.simulation, width, timeline.lanes);
  passes::Simulation columns = timeline.simulation;
  const double end = timeline.lanes ? columns.step_time
                                    : std::ranges::max(columns.ranks, {}, &passes::RankTimes::last_end).last_end;
  const double column = end > 0 ? end / std::max(20, width - (timeline.lanes ? 23 : 12)) : 1;
  for (auto& rank : columns.actions) {
    for (passes::ActionTime& time : rank) time = {time.start / column, time.end / column};
  }
  return gantt(timeline.plan, timeline.program, columns, width, timeline.lanes) +
         fmt::format("(one column is {})\n", seconds_text(column));
}

// Writes the pictures that were asked for; kSuccess, or kRuntime after a message.
int write_pictures(const TimelineArguments& arguments, const Timeline& timeline, const std::string& title,
                   Streams streams) {
  if (!arguments.html && !arguments.trace) return kSuccess;
  const auto memory = passes::memory_timeline(timeline.plan, timeline.program, timeline.simulation);
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::string reason = write_file(path, text);
    if (reason.empty()) {
      streams.out << "written: " << path << "\n";
      return true;
    }
    streams.err << path << ": error: cannot write: " << reason << "\n";
    return false;
  };
  if (arguments.html && !write(*arguments.html, timeline_html(timeline.plan, timeline.program, timeline.simulation,
                                                              memory, {title, figures(timeline), timeline.seconds}))) {
    return kRuntime;
  }
  // A slot is drawn as a millisecond.
  if (arguments.trace && !write(*arguments.trace, timeline_trace(timeline.plan, timeline.program, timeline.simulation,
                                                                 memory, timeline.seconds ? 1e6 : 1e3))) {
    return kRuntime;
  }
  return kSuccess;
}

}  // namespace

int timeline_command(const TimelineArguments& arguments, Streams streams) {
  ir::DiagnosticSink sink;
  std::optional<passes::HardwareProfile> profile;
  if (arguments.profile) {
    profile = load_profile(*arguments.profile, default_profile_folders(), sink);
    if (!profile) return report(sink, streams);
  }
  const auto file = read_plan_file(arguments.plan, streams);
  if (!file) return kDiagnosed;
  const ir::Plan& plan = file->plan;
  const ir::Program* program = find_program(plan, arguments.program, sink);
  if (!program) return report(sink, streams);
  if (arguments.rendezvous && plan.level < ir::Level::Communication) {
    sink.error({"--rendezvous", 0, 0}, "the plan is at stage level, its sends and receives are not in place");
    return report(sink, streams);
  }
  const passes::UnitCosts slots(arguments.forward, arguments.input, arguments.weight);
  const auto priced = profile ? passes::PricedCosts::create(plan, *profile, sink) : nullptr;
  if (profile && !priced) return report(sink, streams);
  const passes::CostModel& costs = priced ? static_cast<const passes::CostModel&>(*priced) : slots;
  const auto mode = arguments.rendezvous ? passes::Communication::Rendezvous : passes::Communication::Asynchronous;
  auto simulation = passes::simulate(plan, *program, costs, sink, {mode});
  if (!simulation) return report(sink, streams);
  const bool lanes = arguments.rendezvous && plan.level == ir::Level::Lane;
  const Timeline timeline{plan, *program, std::move(*simulation), profile.has_value(), lanes};
  const std::string title = heading(arguments, timeline, profile ? profile->name : "");
  streams.out << title << "\n" << chart(timeline, arguments.width);
  for (const std::string& line : figures(timeline)) streams.out << line << "\n";
  streams.out << rank_lines(timeline);
  if (const int code = write_pictures(arguments, timeline, title, streams)) return code;
  return finish_output(streams);
}

}  // namespace fem::compiler
