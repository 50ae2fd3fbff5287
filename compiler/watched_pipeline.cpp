#include "compiler/watched_pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/command_support.hpp"
#include "compiler/plan_diff.hpp"
#include "ir/text.hpp"
#include "passes/reproducer.hpp"

namespace fem::compiler {
namespace {

constexpr std::string_view kAll = "all";

// Milliseconds of running and verifying each pass, and its share of the sum.
std::string timing_table(const std::vector<passes::PassTiming>& timings) {
  const auto milliseconds = [](std::chrono::nanoseconds t) { return static_cast<double>(t.count()) / 1e6; };
  std::chrono::nanoseconds run{}, verify{};
  for (const passes::PassTiming& t : timings) {
    run += t.run;
    verify += t.verify;
  }
  const double all = std::max(milliseconds(run + verify), 1e-6);
  std::string text = fmt::format("{:<20} {:>12} {:>12} {:>8}\n", "pass", "run ms", "verify ms", "share");
  const auto row = [&](std::string_view pass, std::chrono::nanoseconds r, std::chrono::nanoseconds v) {
    text += fmt::format("{:<20} {:>12.3f} {:>12.3f} {:>6.1f} %\n", pass, milliseconds(r), milliseconds(v),
                        100 * milliseconds(r + v) / all);
  };
  for (const passes::PassTiming& t : timings) row(t.pass, t.run, t.verify);
  row("total", run, verify);
  return text;
}

void write_reproducer(const passes::FailedPass& failed, const std::string& path, ir::DiagnosticSink& sink) {
  const std::string reason = write_file(path, passes::reproducer_text(failed, sink));
  if (!reason.empty()) return sink.error({path, 0, 0}, fmt::format("cannot write the reproducer: {}", reason));
  sink.note({path, 0, 0}, "holds the failing pass's input and the rest of the pipeline; 'femc replay' runs it");
}

}  // namespace

std::optional<WatchedPipeline> WatchedPipeline::read(const PlanArguments& arguments, ir::DiagnosticSink& sink,
                                                     std::span<const passes::PassInfo> table,
                                                     const ir::Settings& settings) {
  const ir::SourceText text("--passes", arguments.passes.value_or(passes::default_pipeline(settings)));
  auto pipeline = passes::parse_pipeline(text, sink, table);
  if (!pipeline) return std::nullopt;
  WatchedPipeline watched;
  watched.arguments_ = arguments;
  watched.pipeline_ = std::move(*pipeline);
  if (!arguments.print_after || *arguments.print_after == kAll) return watched;
  std::vector<std::string_view> names;
  for (const passes::PassCall& call : watched.pipeline_.calls) names.push_back(call.pass->name);
  if (std::ranges::find(names, *arguments.print_after) != names.end()) return watched;
  const std::string known = names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  names.push_back(kAll);
  sink.error({"--print-after", 0, 0},
             fmt::format("'{}' is no pass of this pipeline{}; its passes: {}", *arguments.print_after,
                         ir::did_you_mean(*arguments.print_after, names), known));
  return std::nullopt;
}

bool WatchedPipeline::run(ir::Plan& plan, const std::string& reproducer, ir::DiagnosticSink& sink,
                          Streams streams) const {
  std::vector<passes::PassTiming> timings;
  std::optional<passes::FailedPass> failed;
  passes::RunOptions options;
  options.disabled = arguments_.disable;
  options.failed = &failed;
  if (arguments_.time_passes) options.timings = &timings;
  options.after = [&](std::string_view pass, const ir::Plan& now) {
    if (arguments_.print_after != kAll && arguments_.print_after != pass) return;
    streams.err << fmt::format("# after {}\n", pass) << ir::print_plan(now);
  };
  if (arguments_.print_changed) {
    options.changed = [&](std::string_view pass, const ir::Plan& before, const ir::Plan& now) {
      streams.err << fmt::format("# changed by {}\n", pass)
                  << diff_text(diff_plans(before, now), before, now, {});
    };
  }
  const bool ok = passes::run_pipeline(pipeline_, plan, sink, options);
  if (arguments_.time_passes) streams.err << timing_table(timings);
  if (failed) write_reproducer(*failed, reproducer, sink);
  return ok;
}

}  // namespace fem::compiler
