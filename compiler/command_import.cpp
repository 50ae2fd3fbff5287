// femc import.
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/torch_csv_check.hpp"
#include "compiler/torch_csv_plan.hpp"
#include "ir/text.hpp"

namespace fem::compiler {
namespace {

std::string summary(const TorchFile& file, const TorchShape& shape) {
  std::size_t cells = 0;
  for (const TorchRow& row : file.rows) {
    for (const TorchCell& cell : row.cells) cells += !cell.joined;
  }
  const std::string placement =
      shape.placement ? std::string(name(shape.placement->kind)) : "on ranks " + ranks_text(shape);
  return fmt::format("{} rank{}, {} stage{} ({}), {} microbatch{}, {} cells, {}, {} dialect, {} unit steps",
                     file.rows.size(), file.rows.size() == 1 ? "" : "s", shape.stages(), shape.stages() == 1 ? "" : "s",
                     placement, shape.microbatches, shape.microbatches == 1 ? "" : "es", cells,
                     file.communication ? "with communication" : "compute only",
                     file.older_dialect ? "older" : "current", shape.unit_steps);
}

std::optional<ir::Plan> import_plan(const ImportArguments& arguments, const TorchFile& file, const TorchShape& shape,
                                    const SourcePtr& config, ir::DiagnosticSink& sink) {
  const auto configuration = read_configuration(config, arguments.set, sink);
  if (!configuration) return std::nullopt;
  return plan_of_torch_csv(file, shape, *configuration, {arguments.keep_communication}, sink);
}

}  // namespace

int import_command(const ImportArguments& arguments, Streams streams) {
  if (!arguments.check && !arguments.config) {
    streams.err << "error: import needs --config CONFIG, or --check to look at the file alone\n";
    return kUsage;
  }
  const SourcePtr source = read_source(arguments.file, streams);
  const SourcePtr config = source && arguments.config ? read_source(*arguments.config, streams) : nullptr;
  if (!source || (arguments.config && !config)) return kDiagnosed;
  ir::DiagnosticSink sink;
  const auto file = read_torch_csv(source, sink);
  const auto shape = file ? check_torch_csv(*file, sink) : std::nullopt;
  if (!shape) {
    report(sink, streams);
    return kDiagnosed;
  }
  if (arguments.check) {
    report(sink, streams);
    streams.out << fmt::format("{}: ok, {}\n", arguments.file, summary(*file, *shape));
    return finish_output(streams);
  }
  const auto plan = import_plan(arguments, *file, *shape, config, sink);
  report(sink, streams);
  if (!plan) return kDiagnosed;
  return write_output(arguments.output, ir::print_plan(*plan), contents(*plan), streams);
}

}  // namespace fem::compiler
