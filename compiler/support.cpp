#include "compiler/support.hpp"

#include <array>

#include <fmt/format.h>

namespace fem::compiler {

bool check_support(const Configuration& configuration, PlacementKind placement, ir::DiagnosticSink& sink) {
  const int errors = sink.errors();
  const auto& parallel = configuration.settings().parallel;
  const std::array<std::pair<std::string_view, std::int64_t>, 3> axes = {
      {{"tp", parallel.tp}, {"cp", parallel.cp}, {"ep", parallel.ep}}};
  for (const auto& [axis, size] : axes) {
    if (size == 1) continue;
    configuration.error(sink, {fmt::format("parallel.{}", axis)},
                        fmt::format("{}={}: units run with {}=1 only in this version", axis, size, axis));
  }
  if (placement == PlacementKind::Bidirectional && parallel.reduce != "step") {
    configuration.error(sink, {"parallel.reduce"},
                        fmt::format("parallel.reduce={} with a schedule of two directions: the gradients of a stage's "
                                    "two replicas are added once a step; nearest: parallel.reduce=step",
                                    parallel.reduce));
  }
  return sink.errors() == errors;
}

}  // namespace fem::compiler
