#include <filesystem>
#include <memory>
#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/planner.hpp"
#include "compiler/watched_pipeline.hpp"

namespace fem::compiler {
namespace {

std::string reproducer_path(const PlanArguments& arguments) {
  if (arguments.reproducer) return *arguments.reproducer;
  std::filesystem::path output(arguments.output.value_or(""));
  std::error_code error;
  // Nothing is written beside a pipe or a device.
  if (std::filesystem::exists(output, error) && !std::filesystem::is_regular_file(output, error)) output.clear();
  return (output.parent_path() / "femc-reproducer.txt").string();
}

std::optional<ir::Plan> compile(const PlanArguments& arguments, const ScheduleFolders& folders, const SourcePtr& file,
                                ir::DiagnosticSink& sink, Streams streams) {
  const auto configuration = read_configuration(file, arguments.set, sink);
  const auto pipeline = WatchedPipeline::read(arguments, sink, passes::pass_table(),
                                              configuration ? configuration->settings() : ir::Settings());
  if (!pipeline || !configuration) return std::nullopt;
  const auto no_schedule = [&](std::string message) {
    configuration->error(sink, {"schedule.name"}, std::move(message));
  };
  const auto schedule = load_schedule(configuration->settings().schedule.name, folders, no_schedule, sink);
  if (!schedule) return std::nullopt;
  auto plan = make_plan(*configuration, *schedule, sink);
  if (!plan) return std::nullopt;
  return pipeline->run(*plan, reproducer_path(arguments), sink, streams) ? std::move(plan) : std::nullopt;
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
