// Passes as data: a table, pipelines as text, and the one loop that runs, verifies and times them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"

namespace fem::passes {

enum class OptionType : std::uint8_t { Int, Bool, Text };
std::string_view name(OptionType type);  // "integer", "true or false", "text"

struct OptionInfo {
  std::string_view name;
  OptionType type;
  std::string_view value;    // the default, as text
  std::string_view choices;  // Text: "a|b|c"; Int: "low..high", either end may be missing; "": anything
  std::string_view doc;
};

// Values of a pass's options, defaults filled in. Asking for a name that is not in the pass's rows is a programming
// error.
class PassOptions {
 public:
  explicit PassOptions(std::span<const OptionInfo> rows);

  std::int64_t integer(std::string_view name) const;
  bool boolean(std::string_view name) const;
  const std::string& text(std::string_view name) const;

  // By row; `value` has been checked against the row.
  const std::string& value(std::size_t row) const { return values_[row]; }
  bool is_default(std::size_t row) const { return values_[row] == rows_[row].value; }
  void set(std::size_t row, std::string value) { values_[row] = std::move(value); }

 private:
  std::size_t find(std::string_view name, OptionType type) const;

  std::span<const OptionInfo> rows_;
  std::vector<std::string> values_;
};

// A pass rewrites the plan in place. False: it failed and said why; the plan is then not to be used.
using PassFunction = bool (*)(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink& sink);

// A row of passes.def.
struct PassInfo {
  std::string_view name;
  ir::Level in, out;
  std::span<const std::string_view> needs, conflicts;
  bool optimisation;
  std::span<const OptionInfo> options;
  std::string_view doc;
  PassFunction run;
};
std::span<const PassInfo> pass_table();  // in file order

// The pipeline of a configuration that names none, as text: what its settings ask for.
std::string default_pipeline(const ir::Settings& settings = {});

// One pass with its options, and where its name stands in the pipeline's text.
struct PassCall {
  const PassInfo* pass;
  PassOptions options;
  ir::SourceLocation where;
};
struct Pipeline {
  std::vector<PassCall> calls;
};

// Reads `name{option=value,...},name,...`; blanks and line ends between words are allowed, an empty text is the empty
// pipeline. Reports every unknown pass, unknown option and wrong value with its position and the nearest valid
// one, and levels, requirements and conflicts that do not fit.
std::optional<Pipeline> parse_pipeline(const ir::SourceText& source, ir::DiagnosticSink& sink,
                                       std::span<const PassInfo> table = pass_table());

// The text that parse_pipeline reads back: options that differ from their defaults only.
std::string pipeline_text(const Pipeline& pipeline);

struct PassTiming {
  std::string_view pass;
  std::chrono::nanoseconds run{}, verify{};
};

// The pass that failed, or whose result does not verify, with what it was given.
struct FailedPass {
  std::string ran, rest;  // pipelines as text: what ran before it; itself and what was to follow
  ir::Plan input;
};

struct RunOptions {
  std::function<void(std::string_view pass, const ir::Plan& plan)> after;  // after each pass, verified
  // Likewise, only after passes that changed the plan.
  std::function<void(std::string_view pass, const ir::Plan& before, const ir::Plan& plan)> changed;
  std::vector<std::string> disabled;            // optimisations to leave out
  std::vector<PassTiming>* timings = nullptr;   // receives one row per pass that ran, a failing one included
  std::optional<FailedPass>* failed = nullptr;  // receives the pass that failed; costs a copy of the plan per pass
};

// Verifies the plan, runs the passes in order and verifies after each: a pass may rely on a verified plan. The memory
// limit counts after the last pass alone. On failure, false: the sink holds the pass's or the verifier's errors, and a
// note that names the pass; the plan is then not to be used.
bool run_pipeline(const Pipeline& pipeline, ir::Plan& plan, ir::DiagnosticSink& sink, const RunOptions& options = {});

}  // namespace fem::passes
