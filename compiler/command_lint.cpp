#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/command_support.hpp"
#include "compiler/reference_pages.hpp"
#include "compiler/schedule_lint.hpp"

namespace fem::compiler {
namespace {

std::string points_text(const std::vector<LintPoint>& points) {
  constexpr std::size_t kShown = 12;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < points.size() && i < kShown; ++i) texts.push_back(lint_text(points[i]));
  if (points.size() > kShown) texts.push_back(fmt::format("and {} more", points.size() - kShown));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string report_text(const Schedule& schedule, const LintReport& report) {
  std::string text = fmt::format("{}: schedule '{}', placement {}, {}, backward {}\n", schedule.source->file(),
                                 schedule.name, name(schedule.placement), chunks_text(schedule.chunks),
                                 schedule.split ? "split" : "whole");
  text += fmt::format("{:>5} {:>8} {:>8} {:>7} {:>12}\n", "p", "planned", "refused", "failed", "comparisons");
  LintReport::Row sum;
  for (const LintReport::Row& row : report.rows) {
    text += fmt::format("{:>5} {:>8} {:>8} {:>7} {:>12}\n", row.p, row.planned, row.refused, row.failed,
                        row.comparisons);
    sum.planned += row.planned;
    sum.refused += row.refused;
    sum.failed += row.failed;
    sum.comparisons += row.comparisons;
  }
  text += fmt::format("{:>5} {:>8} {:>8} {:>7} {:>12}\n", "all", sum.planned, sum.refused, sum.failed, sum.comparisons);
  for (std::size_t i = 0; i < report.refusals.size(); ++i) {
    const LintReport::Refusal& refusal = report.refusals[i];
    if (refusal.points == 0) continue;
    text += fmt::format("line {} refuses {} point{}, first {}: {}\n", schedule.require[i].that.where().line,
                        refusal.points, refusal.points == 1 ? "" : "s", lint_text(refusal.first), refusal.message);
  }
  if (!report.not_tried.empty()) {
    text += fmt::format("not tried, time was up: {}\n", points_text(report.not_tried));
  }
  return text;
}

int lint_file(const std::string& file, const LintGrid& grid, const ScheduleFolders& folders, Streams streams) {
  ir::DiagnosticSink sink;
  const auto missing = [&](std::string message) { sink.error({}, std::move(message)); };
  const auto schedule = load_schedule(file, folders, missing, sink);
  const auto report = schedule ? lint_schedule(*schedule, grid, sink) : std::nullopt;
  if (!report) return compiler::report(sink, streams);
  streams.out << report_text(*schedule, *report);
  for (const LintFault& fault : report->faults) {
    sink.report(fault.diagnostic);
    if (!fault.points.empty()) sink.note(fault.diagnostic.where, fmt::format("at {}", points_text(fault.points)));
  }
  const std::size_t faults = report->faults.size();
  streams.out << (faults == 0 ? std::string("no fault found\n")
                              : fmt::format("{} fault{}\n", faults, faults == 1 ? "" : "s"));
  return compiler::report(sink, streams);
}

}  // namespace

int lint_command(const LintArguments& arguments, const ScheduleFolders& folders, Streams streams) {
  int code = kSuccess;
  for (const std::string& file : arguments.files) {
    code = std::max(code, lint_file(file, arguments.grid, folders, streams));
  }
  return code == kSuccess ? finish_output(streams) : code;
}

}  // namespace fem::compiler
