#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/watched_pipeline.hpp"
#include "passes/reproducer.hpp"

namespace fem::compiler {

int replay(const std::string& file, Streams streams, std::span<const passes::PassInfo> table) {
  const SourcePtr source = read_source(file, streams);
  if (!source) return kDiagnosed;
  ir::DiagnosticSink sink;
  auto reproducer = passes::parse_reproducer(*source, sink, table);
  const bool ok = reproducer && passes::run_pipeline(reproducer->rest, reproducer->input, sink);
  report(sink, streams);
  if (!ok) return kDiagnosed;
  streams.out << fmt::format("{}: '{}' runs through: {}\n", file, passes::pipeline_text(reproducer->rest),
                             contents(reproducer->input));
  return finish_output(streams);
}

int replay_command(const std::string& file, Streams streams) { return replay(file, streams, passes::pass_table()); }

}  // namespace fem::compiler
