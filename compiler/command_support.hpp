// What the commands share: reading a plan file, reporting, writing files safely.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/commands.hpp"
#include "ir/plan.hpp"
#include "ir/text.hpp"

namespace fem::compiler {

// Prints the diagnostics to `err`; kDiagnosed where there is an error among them, else kSuccess.
int report(const ir::DiagnosticSink& sink, Streams streams);

// kSuccess, or kRuntime with a message where `out` could not take everything.
int finish_output(Streams streams);

// A plan file, parsed and verified. Empty after its errors were printed.
struct PlanFile {
  SourcePtr source;
  ir::Plan plan;
};
std::optional<PlanFile> read_plan_file(const std::string& path, Streams streams);

// Reads a text file; prints "FILE: error: cannot read: REASON" and returns null otherwise.
SourcePtr read_source(const std::string& path, Streams streams);

// Writes under a temporary name beside `path`, checks, and renames; what is no regular file (a pipe, a device) is
// written directly. Empty on success, else the reason.
std::string write_file(const std::string& path, std::string_view text);

// Writes to the file `output` and says "OUTPUT: SUMMARY", or without one prints the text. The exit code.
int write_output(const std::optional<std::string>& output, std::string_view text, std::string_view summary,
                 Streams streams);

// "2 programs, 4 pipeline ranks, 312 actions": actions of all ranks of all programs, a batch counting once.
std::string contents(const ir::Plan& plan);

}  // namespace fem::compiler
