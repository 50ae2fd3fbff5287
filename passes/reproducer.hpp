// A text that shows the failure of a pass again: the pass's input, and the rest of the pipeline.
//
//   femtotron reproducer v1
//   # error: no room for stage 3            what was reported, as comments
//   ran communication                       what had run before: passes may need or exclude one another
//   rest prefetch{distance=2},free          the failing pass and what was to follow
//   femtotron plan v1                       the plan that the failing pass was given
//   ...
#pragma once

#include <optional>
#include <string>

#include "passes/manager.hpp"

namespace fem::passes {

// `reported` holds the errors of the failure.
std::string reproducer_text(const FailedPass& failed, const ir::DiagnosticSink& reported);

struct Reproducer {
  ir::Plan input;
  Pipeline rest;
};

// Errors point at the line of the file, in the plan too.
std::optional<Reproducer> parse_reproducer(const ir::SourceText& source, ir::DiagnosticSink& sink,
                                           std::span<const PassInfo> table = pass_table());

}  // namespace fem::passes
