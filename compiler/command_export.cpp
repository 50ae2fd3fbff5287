// femc export.
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/torch_csv_plan.hpp"

namespace fem::compiler {

int export_command(const ExportArguments& arguments, Streams streams) {
  const auto file = read_plan_file(arguments.plan, streams);
  if (!file) return kDiagnosed;
  ir::DiagnosticSink sink;
  const auto text = torch_csv_of_plan(file->plan, {arguments.compute_only}, sink);
  for (const ir::Diagnostic& diagnostic : sink.all()) {
    streams.err << fmt::format("{}: error: {}\n", arguments.plan, diagnostic.message);
  }
  if (!text) return kDiagnosed;
  const auto rows = std::ranges::count(*text, '\n');
  const auto cells = rows + std::ranges::count(*text, ',');
  return write_output(arguments.output, *text, fmt::format("{} row{}, {} cells", rows, rows == 1 ? "" : "s", cells),
                      streams);
}

}  // namespace fem::compiler
