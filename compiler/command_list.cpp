// femc list and femc explain.
#include <algorithm>
#include <array>
#include <memory>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/command_support.hpp"
#include "compiler/reference_pages.hpp"
#include "ir/verify.hpp"
#include "passes/manager.hpp"

namespace fem::compiler {
namespace {

constexpr std::array<std::string_view, 3> kLists = {"schedules", "actions", "passes"};

int list_schedules(const ScheduleFolders& folders, Streams streams) {
  ir::DiagnosticSink sink;
  const auto report_missing = [&](std::string message) { sink.error({}, std::move(message)); };
  for (const std::string& name : schedule_names(folders)) {
    const auto schedule = load_schedule(name, folders, report_missing, sink);
    if (!schedule) continue;
    streams.out << fmt::format("{:<18} placement {}, {}, backward {}\n{:<18} {}\n", name,
                               compiler::name(schedule->placement), chunks_text(schedule->chunks),
                               schedule->split ? "split" : "whole", "", schedule->reference);
  }
  const int code = report(sink, streams);
  return code == kSuccess ? finish_output(streams) : code;
}

}  // namespace

int list_command(const std::string& what, const ScheduleFolders& folders, Streams streams) {
  if (what == "schedules") return list_schedules(folders, streams);
  if (what == "actions") {
    for (int kind = 0; kind < ir::kActionKinds; ++kind) {
      const ir::ActionInfo& row = ir::info(static_cast<ir::ActionKind>(kind));
      streams.out << fmt::format("{:<16} {:<11} {}\n", row.name, ir::name(row.lane), row.doc);
    }
    return finish_output(streams);
  }
  if (what == "passes") {
    for (const passes::PassInfo& pass : passes::pass_table()) {
      streams.out << fmt::format("{:<16} {} -> {}: {}\n", pass.name, ir::name(pass.in), ir::name(pass.out), pass.doc);
      for (const passes::OptionInfo& option : pass.options) {
        streams.out << fmt::format("{:<16} {}={} ({}): {}\n", "", option.name, option.value, passes::name(option.type),
                                   option.doc);
      }
    }
    return finish_output(streams);
  }
  streams.err << fmt::format("error: there is no list '{}'{}; valid: {}\n", what, ir::did_you_mean(what, kLists),
                             fmt::join(kLists, ", "));
  return kUsage;
}

int explain_command(const std::string& code, Streams streams) {
  const ir::InvariantInfo* found = ir::find_invariant(code);
  if (!found) {
    std::vector<std::string_view> codes;
    for (const ir::InvariantInfo& row : ir::invariants()) codes.push_back(row.code);
    streams.err << fmt::format("error: there is no invariant '{}'{}; valid: {}\n", code, ir::did_you_mean(code, codes),
                               fmt::join(codes, ", "));
    return kDiagnosed;
  }
  streams.out << fmt::format("{}: {}\n\n{}\n", found->code, found->title, found->explanation);
  return finish_output(streams);
}

}  // namespace fem::compiler
