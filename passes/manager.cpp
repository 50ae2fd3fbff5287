#include "passes/manager.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "ir/verify.hpp"

namespace fem::passes {

std::string_view name(OptionType type) {
  switch (type) {
    case OptionType::Int:
      return "integer";
    case OptionType::Bool:
      return "true or false";
    case OptionType::Text:
      return "text";
  }
  return "";
}

PassOptions::PassOptions(std::span<const OptionInfo> rows) : rows_(rows) {
  for (const OptionInfo& row : rows) values_.emplace_back(row.value);
}

std::size_t PassOptions::find(std::string_view name, OptionType type) const {
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].name == name && rows_[i].type == type) return i;
  std::abort();  // a pass asks for an option that its own row lacks
}

std::int64_t PassOptions::integer(std::string_view name) const {
  const std::string& text = values_[find(name, OptionType::Int)];
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool PassOptions::boolean(std::string_view name) const { return values_[find(name, OptionType::Bool)] == "true"; }

const std::string& PassOptions::text(std::string_view name) const { return values_[find(name, OptionType::Text)]; }

namespace {

using Clock = std::chrono::steady_clock;

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// Whether the pass is to be left out.
bool is_disabled(const PassInfo& pass, const RunOptions& options) {
  return std::ranges::find(options.disabled, pass.name) != options.disabled.end();
}

// Names in `disabled` that are no optimisation of the pipeline or of the table, or that a pass needs.
bool check_disabled(const Pipeline& pipeline, ir::DiagnosticSink& sink, const RunOptions& options) {
  std::vector<const PassInfo*> known;
  for (const PassInfo& row : pass_table()) known.push_back(&row);
  for (const PassCall& call : pipeline.calls) known.push_back(call.pass);
  std::vector<std::string_view> optimisations;
  for (const PassInfo* pass : known)
    if (pass->optimisation) optimisations.push_back(pass->name);
  const int errors_before = sink.errors();
  for (const std::string& name : options.disabled) {
    if (std::ranges::find(optimisations, name) != optimisations.end()) continue;
    const bool exists = std::ranges::any_of(known, [&](const PassInfo* pass) { return pass->name == name; });
    sink.error({}, exists ? "pass " + quoted(name) + " is no optimisation and cannot be disabled"
                          : "no pass " + quoted(name) + " to disable" + ir::did_you_mean(name, optimisations));
  }
  for (const PassCall& call : pipeline.calls)
    for (std::string_view needed : call.pass->needs)
      if (!is_disabled(*call.pass, options) && std::ranges::find(options.disabled, needed) != options.disabled.end())
        sink.error(call.where, "pass " + quoted(call.pass->name) + " needs " + quoted(needed) + ", which is disabled");
  return sink.errors() == errors_before;
}

bool check_level(const PassCall& call, const ir::Plan& plan, ir::DiagnosticSink& sink) {
  if (plan.level == call.pass->in) return true;
  sink.error(call.where, "pass " + quoted(call.pass->name) + " takes a plan at " +
                             std::string(ir::name(call.pass->in)) + " level, this one is at " +
                             std::string(ir::name(plan.level)) + " level");
  return false;
}

bool run_call(const PassCall& call, ir::Plan& plan, ir::DiagnosticSink& sink, const RunOptions& options) {
  const PassInfo& pass = *call.pass;
  const Clock::time_point start = Clock::now();
  const bool ran = pass.run(plan, call.options, sink);
  const Clock::time_point ran_at = Clock::now();
  if (!ran) {
    if (options.timings) options.timings->push_back({pass.name, ran_at - start, {}});
    sink.note(call.where, "pass " + quoted(pass.name) + " failed");
    return false;
  }
  if (plan.level != pass.out) {
    sink.error(call.where, "pass " + quoted(pass.name) + " left the plan at " + std::string(ir::name(plan.level)) +
                               " level, its row says " + std::string(ir::name(pass.out)) + ": a fault in the pass");
    return false;
  }
  const bool verified = ir::verify(plan, sink, {}, ir::MemoryLimit::Ignored);
  if (options.timings) options.timings->push_back({pass.name, ran_at - start, Clock::now() - ran_at});
  if (!verified) {
    sink.note(call.where, "the plan does not verify after pass " + quoted(pass.name) + ": a fault in the pass");
    return false;
  }
  if (options.after) options.after(pass.name, plan);
  return true;
}

FailedPass failed_pass(const Pipeline& pipeline, std::size_t failed, ir::Plan input) {
  Pipeline ran, rest;
  for (std::size_t i = 0; i < pipeline.calls.size(); ++i)
    (i < failed ? ran : rest).calls.push_back(pipeline.calls[i]);
  return {pipeline_text(ran), pipeline_text(rest), std::move(input)};
}

}  // namespace

bool run_pipeline(const Pipeline& pipeline, ir::Plan& plan, ir::DiagnosticSink& sink, const RunOptions& options) {
  if (!check_disabled(pipeline, sink, options)) return false;
  if (!ir::verify(plan, sink, {}, ir::MemoryLimit::Ignored)) {
    sink.note({}, "the plan does not verify before the first pass");
    return false;
  }
  Pipeline enabled;
  for (const PassCall& call : pipeline.calls)
    if (!is_disabled(*call.pass, options)) enabled.calls.push_back(call);
  for (std::size_t i = 0; i < enabled.calls.size(); ++i) {
    const PassCall& call = enabled.calls[i];
    if (!check_level(call, plan, sink)) return false;
    ir::Plan before;
    if (options.changed || options.failed) before = plan;
    if (!run_call(call, plan, sink, options)) {
      if (options.failed) *options.failed = failed_pass(enabled, i, std::move(before));
      return false;
    }
    if (options.changed && before != plan) options.changed(call.pass->name, before, plan);
  }
  return ir::verify_memory(plan, sink);
}

}  // namespace fem::passes
