#include <algorithm>
#include <memory>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/command_support.hpp"
#include "compiler/planner.hpp"
#include "ir/verify.hpp"
#include "passes/manager.hpp"

namespace fem::compiler {
namespace {

std::optional<passes::Pipeline> read_pipeline(const PlanArguments& arguments, ir::DiagnosticSink& sink) {
  const ir::SourceText text("--passes", arguments.passes.value_or(std::string(passes::default_pipeline())));
  auto pipeline = passes::parse_pipeline(text, sink);
  if (!pipeline || !arguments.print_after) return pipeline;
  std::vector<std::string_view> names;
  for (const passes::PassCall& call : pipeline->calls) names.push_back(call.pass->name);
  if (std::ranges::find(names, *arguments.print_after) != names.end()) return pipeline;
  sink.error({"--print-after", 0, 0},
             fmt::format("'{}' is no pass of this pipeline{}; its passes: {}", *arguments.print_after,
                         ir::did_you_mean(*arguments.print_after, names),
                         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  return std::nullopt;
}

std::optional<ir::Plan> compile(const PlanArguments& arguments, const ScheduleFolders& folders, const SourcePtr& file,
                                ir::DiagnosticSink& sink, Streams streams) {
  const auto pipeline = read_pipeline(arguments, sink);
  const auto configuration = read_configuration(file, arguments.set, sink);
  if (!pipeline || !configuration) return std::nullopt;
  const auto no_schedule = [&](std::string message) {
    configuration->error(sink, {"schedule.name"}, std::move(message));
  };
  const auto schedule = load_schedule(configuration->settings().schedule.name, folders, no_schedule, sink);
  if (!schedule) return std::nullopt;
  auto plan = make_plan(*configuration, *schedule, sink);
  if (!plan) return std::nullopt;
  passes::RunOptions options;
  options.after = [&](std::string_view pass, const ir::Plan& now) {
    if (pass == arguments.print_after) streams.err << fmt::format("# after {}\n", pass) << ir::print_plan(now);
  };
  if (!passes::run_pipeline(*pipeline, *plan, sink, options) || !ir::verify(*plan, sink)) return std::nullopt;
  return plan;
}

}  // namespace

int plan_command(const PlanArguments& arguments, const ScheduleFolders& folders, Streams streams) {
  const SourcePtr file = read_source(arguments.config, streams);
  if (!file) return kDiagnosed;
  ir::DiagnosticSink sink;
  const auto plan = compile(arguments, folders, file, sink, streams);
  report(sink, streams);
  if (!plan) return kDiagnosed;
  const std::string text = ir::print_plan(*plan);
  if (!arguments.output) {
    streams.out << text;
    return finish_output(streams);
  }
  const std::string reason = write_file(*arguments.output, text);
  if (!reason.empty()) {
    streams.err << fmt::format("{}: error: cannot write: {}\n", *arguments.output, reason);
    return kRuntime;
  }
  streams.out << fmt::format("{}: {}\n", *arguments.output, contents(*plan));
  return finish_output(streams);
}

}  // namespace fem::compiler
