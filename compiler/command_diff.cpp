// femc diff.
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/plan_diff.hpp"
#include "ir/text.hpp"

namespace fem::compiler {
namespace {

// Without verifying: what a broken plan changed is a good reason to compare.
std::optional<ir::Plan> parse_file(const std::string& path, Streams streams) {
  const SourcePtr source = read_source(path, streams);
  if (!source) return std::nullopt;
  ir::DiagnosticSink sink;
  auto plan = ir::parse_plan(*source, sink);
  report(sink, streams);
  return plan;
}

}  // namespace

int diff_command(const DiffArguments& arguments, Streams streams) {
  const auto a = parse_file(arguments.a, streams);
  const auto b = parse_file(arguments.b, streams);
  if (!a || !b) return kDiagnosed;
  const auto ranks = static_cast<int>(std::max(a->settings.parallel.pp, b->settings.parallel.pp));
  if (arguments.rank && (*arguments.rank < 0 || *arguments.rank >= ranks)) {
    streams.err << fmt::format("--rank: error: {} is no pipeline rank of these plans; valid: 0 to {}\n",
                               *arguments.rank, ranks - 1);
    return kDiagnosed;
  }
  const PlanDifference difference = diff_plans(*a, *b);
  streams.out << fmt::format("A {}\nB {}\n", arguments.a, arguments.b)
              << diff_text(difference, *a, *b, {arguments.rank.value_or(-1), arguments.all, arguments.table});
  if (const int code = finish_output(streams); code != kSuccess) return code;
  return arguments.exit_code && difference.any() ? kDiagnosed : kSuccess;
}

}  // namespace fem::compiler
