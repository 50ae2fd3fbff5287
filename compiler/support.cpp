#include "compiler/support.hpp"

#include <array>

#include <fmt/format.h>

namespace fem::compiler {

bool check_support(const Configuration& configuration, const Schedule& schedule, ir::DiagnosticSink& sink) {
  const int errors = sink.errors();
  const auto& parallel = configuration.settings().parallel;
  const std::array<std::pair<std::string_view, std::int64_t>, 3> axes = {
      {{"tp", parallel.tp}, {"cp", parallel.cp}, {"ep", parallel.ep}}};
  for (const auto& [axis, size] : axes) {
    if (size == 1) continue;
    configuration.error(sink, {fmt::format("parallel.{}", axis)},
                        fmt::format("{}={}: units run with {}=1 only in this version", axis, size, axis));
  }
  if (schedule.placement == PlacementKind::Bidirectional) {
    configuration.error(sink, {"schedule.name"},
                        fmt::format("schedule '{}' has two replicas of the parameters (placement bidirectional): their "
                                    "gradients are not reduced in this version",
                                    schedule.name));
  }
  if (schedule.placement == PlacementKind::V && configuration.settings().model.tied && parallel.pp > 1) {
    configuration.error(
        sink, {"model.tied"},
        fmt::format("model.tied=true with schedule '{}' (placement v): both copies of the embedding lie "
                    "on one rank of several, which is not reduced in this version",
                    schedule.name));
  }
  return sink.errors() == errors;
}

}  // namespace fem::compiler
