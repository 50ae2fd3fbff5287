#include "compiler/reference_pages.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/config.hpp"
#include "ir/action.hpp"
#include "ir/verify.hpp"
#include "passes/manager.hpp"

namespace fem::compiler {
namespace {

std::string heading(std::string_view title, std::string_view source) {
  return fmt::format("<!-- Written by `femc docs` from {}. -->\n# {}\n", source, title);
}

// A cell of a table: '|' would end it.
std::string cell(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string resources(const ir::ResourceSet& set) {
  std::vector<std::string_view> names;
  for (int kind = 0; kind < ir::kResourceKinds; ++kind) {
    if (set.has(static_cast<ir::ResourceKind>(kind))) names.push_back(ir::name(static_cast<ir::ResourceKind>(kind)));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string operands(const ir::ActionInfo& row) {
  constexpr std::array<std::pair<unsigned, std::string_view>, 6> kOperands = {{{ir::operand::kS, "stage"},
                                                                               {ir::operand::kM, "microbatch"},
                                                                               {ir::operand::kU, "[unit]"},
                                                                               {ir::operand::kSlot, "[slot]"},
                                                                               {ir::operand::kPeer, "peer"},
                                                                               {ir::operand::kG, "group"}}};
  std::vector<std::string_view> names;
  for (const auto& [bit, text] : kOperands) {
    if (row.has(bit)) names.push_back(text);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

std::string actions_page() {
  std::string text = heading("Actions", "ir/actions.def and ir/groups.def");
  text +=
      "\nEvery line of a plan's programs is one of these, or a batch of sends and receives whose names are written\n"
      "together (`SendForwardRecvBackward`), or the overlapped pair `ForwardBackward`. Operands in brackets may be\n"
      "left out: the line then stands for all units of the stage. Reads, writes and kills name resources of the same\n"
      "stage and microbatch; what an action kills has its last use there.\n\n"
      "| action | operands | from level | lane | in timelines | reads | writes | kills | what it does |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (int kind = 0; kind < ir::kActionKinds; ++kind) {
    const ir::ActionInfo& row = ir::info(static_cast<ir::ActionKind>(kind));
    const std::string letter = row.letter ? std::string(1, row.letter) : "";
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |\n", row.name, operands(row),
                        ir::name(row.level), ir::name(row.lane), letter, resources(row.reads), resources(row.writes),
                        resources(row.kills), cell(row.doc));
  }
  text += "\n## Groups\n\n| group | ranks |\n|---|---|\n";
  for (int group = 0; group < ir::kGroups; ++group) {
    const auto g = static_cast<ir::Group>(group);
    text += fmt::format("| `{}` | {} |\n", ir::name(g), cell(ir::doc(g)));
  }
  return text;
}

std::string_view type_name(ir::SettingType type) {
  switch (type) {
    case ir::SettingType::Int:
      return "integer";
    case ir::SettingType::Real:
      return "number";
    case ir::SettingType::Bool:
      return "true or false";
    case ir::SettingType::Text:
      return "text";
    case ir::SettingType::Ints:
      return "list of integers";
  }
  return "";
}

std::string settings_page() {
  std::string text = heading("Settings", "ir/settings.def");
  text +=
      "\nA configuration is one YAML file with these sections and keys. `femc plan --set section.key=value` overrides\n"
      "any of them; those marked *run* may be changed by `femrun --set` too, the others are part of the plan.\n";
  const ir::Settings defaults;
  const std::vector<std::string_view> required(required_settings().begin(), required_settings().end());
  for (const ir::SectionInfo& section : ir::setting_sections()) {
    text += fmt::format("\n## {}\n\n{}\n\n| key | type | default | changed by | meaning |\n|---|---|---|---|---|\n",
                        section.name, section.doc);
    for (const ir::SettingInfo& row : ir::setting_table()) {
      if (row.section != section.name) continue;
      const std::string key = fmt::format("{}.{}", row.section, row.key);
      const bool must = std::ranges::find(required, key) != required.end();
      std::string type = row.allowed.choices.empty() ? std::string(type_name(row.type)) : cell(row.allowed.choices);
      if (const std::string limit = ir::limit_text(row); !limit.empty()) type += ", " + limit;
      const std::string value = ir::setting_text(defaults, row);
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.key, type,
                          must                               ? "required"
                          : value == "\"\"" || value.empty() ? ""
                                                             : fmt::format("`{}`", value),
                          row.change == ir::SettingChange::Run ? "run" : "plan", cell(row.doc));
    }
  }
  return text;
}

std::string invariants_page() {
  std::string text = heading("Invariants of a plan", "ir/invariants.def");
  text += "\nThe verifier names the rule that a plan breaks by its code; `femc explain CODE` prints its paragraph.\n";
  for (const ir::InvariantInfo& row : ir::invariants()) {
    text += fmt::format("\n## {}: {}\n\n{}\n", row.code, row.title, row.explanation);
  }
  return text;
}

std::string passes_page() {
  std::string text = heading("Passes", "passes/passes.def");
  text += fmt::format(
      "\n`femc plan --passes TEXT` runs `name{{option=value,...}},name,...` in order; the plan is verified after "
      "each.\n"
      "Without it the pipeline is `{}`, and what the sections parallel and memory of the configuration ask for.\n",
      passes::default_pipeline());
  for (const passes::PassInfo& pass : passes::pass_table()) {
    text += fmt::format("\n## {}\n\nFrom level {} to {}: {}.\n", pass.name, ir::name(pass.in), ir::name(pass.out),
                        pass.doc);
    if (!pass.needs.empty()) text += fmt::format("Needs before it: {}.\n", fmt::join(pass.needs, ", "));
    if (!pass.conflicts.empty()) text += fmt::format("Not together with: {}.\n", fmt::join(pass.conflicts, ", "));
    if (pass.optimisation) text += "An optimisation: may be left out.\n";
    if (pass.options.empty()) continue;
    text += "\n| option | type | default | meaning |\n|---|---|---|---|\n";
    for (const passes::OptionInfo& option : pass.options) {
      text += fmt::format("| `{}` | {} | `{}` | {} |\n", option.name,
                          option.choices.empty() ? std::string(passes::name(option.type)) : cell(option.choices),
                          option.value, cell(option.doc));
    }
  }
  return text;
}

std::string schedule_section(const Schedule& schedule) {
  std::string text =
      fmt::format("\n## {}\n\n{}\n\n- placement {}, {}, backward {}\n", schedule.name, schedule.reference,
                  compiler::name(schedule.placement), chunks_text(schedule.chunks), schedule.split ? "split" : "whole");
  for (const ScheduleParameter& parameter : schedule.parameters) {
    text += fmt::format("- parameter `{}`, default `{}`\n", parameter.name, parameter.default_text());
  }
  for (const ScheduleRequire& require : schedule.require) text += fmt::format("- needs `{}`\n", require.that.text());
  for (const ScheduleCheck& check : schedule.check) {
    text += fmt::format("- {} = `{}`{}\n", compiler::name(check.what), check.equals.text(),
                        check.when ? fmt::format(" where `{}`", check.when->text()) : "");
  }
  return text + fmt::format("\n```yaml\n{}```\n", schedule.source->text());
}

std::optional<std::string> schedules_page(const ScheduleFolders& folders, ir::DiagnosticSink& sink) {
  std::string text = heading("Schedules", "schedules/*.yaml");
  text +=
      "\nThe files of schedules/; README.md there explains the language. Symbols: p pipeline ranks, r rank, m\n"
      "microbatches, v chunks (stages per rank). Times: F a chunk's forward, I and W its input and weight gradient,\n"
      "B = I + W a whole backward; peaks count chunks of microbatches.\n";
  const int errors = sink.errors();
  for (const std::string& file : schedule_names(folders)) {
    const auto schedule = load_schedule(
        file, folders, [&](std::string message) { sink.error({}, std::move(message)); }, sink);
    if (schedule) text += schedule_section(*schedule);
  }
  return sink.errors() == errors ? std::optional(text) : std::nullopt;
}

}  // namespace

std::string chunks_text(const ChunkRange& chunks) {
  const std::string text = fmt::format("{} chunk{}", chunks.value, chunks.value == 1 ? "" : "s");
  if (chunks.low == chunks.high) return text;
  if (chunks.high == kMaxChunks) return fmt::format("{} ({} or more)", text, chunks.low);
  return fmt::format("{} ({} to {})", text, chunks.low, chunks.high);
}

std::optional<std::vector<ReferencePage>> reference_pages(const ScheduleFolders& folders, ir::DiagnosticSink& sink) {
  auto schedules = schedules_page(folders, sink);
  if (!schedules) return std::nullopt;
  return std::vector<ReferencePage>{{"actions.md", actions_page()},
                                    {"settings.md", settings_page()},
                                    {"invariants.md", invariants_page()},
                                    {"passes.md", passes_page()},
                                    {"schedules.md", std::move(*schedules)}};
}

}  // namespace fem::compiler
