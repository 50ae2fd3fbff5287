#include <ostream>

#include "compiler/command_support.hpp"
#include "compiler/forecast.hpp"
#include "compiler/profile_reader.hpp"

namespace fem::compiler {

int simulate_command(const SimulateArguments& arguments, Streams streams) {
  ir::DiagnosticSink sink;
  auto profile = load_profile(arguments.profile, default_profile_folders(), sink);
  if (!profile) return report(sink, streams);
  const auto file = read_plan_file(arguments.plan, streams);
  if (!file) return kDiagnosed;
  const ir::Program* program = find_program(file->plan, arguments.program, sink);
  if (!program) return report(sink, streams);
  const bool in_place = file->plan.level >= ir::Level::Communication;
  const auto mode = in_place && !arguments.asynchronous ? passes::Communication::Rendezvous
                                                        : passes::Communication::Asynchronous;
  const auto result = forecast(file->plan, *program, std::move(*profile), mode, sink);
  if (!result) return report(sink, streams);
  streams.out << (arguments.json ? forecast_json(file->plan, *program, *result)
                                 : forecast_text(file->plan, *program, *result));
  return finish_output(streams);
}

}  // namespace fem::compiler
