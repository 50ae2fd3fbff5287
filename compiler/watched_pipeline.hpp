// Running a pass pipeline for a person: what it prints on the way, and the reproducer that a failure leaves.
#pragma once

#include <optional>
#include <string>

#include "compiler/commands.hpp"
#include "passes/manager.hpp"

namespace fem::compiler {

class WatchedPipeline {
 public:
  // Reads the pipeline, or takes the default one of the settings, and checks what the arguments say of it against its
  // passes.
  static std::optional<WatchedPipeline> read(const PlanArguments& arguments, ir::DiagnosticSink& sink,
                                             std::span<const passes::PassInfo> table = passes::pass_table(),
                                             const ir::Settings& settings = {});

  // As passes::run_pipeline. When a pass fails, or the verifier after it, writes a reproducer to `reproducer` and says
  // so; where that cannot be written, an error.
  bool run(ir::Plan& plan, const std::string& reproducer, ir::DiagnosticSink& sink, Streams streams) const;

 private:
  PlanArguments arguments_;
  passes::Pipeline pipeline_;
};

// As replay_command, with passes of another table.
int replay(const std::string& file, Streams streams, std::span<const passes::PassInfo> table);

}  // namespace fem::compiler
