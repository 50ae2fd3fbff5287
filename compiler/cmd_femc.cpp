// femc: reads the command line, calls the compiler library.
#include <algorithm>
#include <iostream>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "compiler/commands.hpp"

namespace {

using namespace fem::compiler;

// The arguments of all subcommands; the one that was given sets the exit code.
struct Femc {
  PlanArguments plan;
  ShowArguments show;
  LintArguments lint;
  TimelineArguments timeline;
  SimulateArguments simulate;
  MemoryArguments memory;
  FitArguments fit;
  ImportArguments import;
  ExportArguments exported;
  DiffArguments diff;
  std::string format = "torch", check, replay, list, explain, docs;
  ScheduleFolders folders = default_schedule_folders();
  Streams streams{std::cout, std::cerr};
  int code = kSuccess;
};

void add_plan(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("plan", "compile a configuration into a plan");
  PlanArguments& plan = femc.plan;
  command->add_option("config", plan.config, "configuration file (YAML)")->required();
  command->add_option("-o,--output", plan.output, "plan file to write; without it the plan is printed");
  command->add_option("--set", plan.set, "override a setting: section.key=value")->allow_extra_args(false);
  command->add_option("--passes", plan.passes, "pass pipeline: name{option=value},name");
  command->add_option("--disable-pass", plan.disable, "leave out an optimisation")->allow_extra_args(false);
  command->add_option("--print-after", plan.print_after, "print the plan after this pass, or after 'all'");
  command->add_flag("--print-changed", plan.print_changed, "print what each pass changed");
  command->add_flag("--time-passes", plan.time_passes, "print the time of each pass and of its verification");
  command->add_option("--reproducer", plan.reproducer,
                      "where a failing pass's input goes; femc-reproducer.txt beside the output otherwise");
  command->callback([&femc] { femc.code = plan_command(femc.plan, femc.folders, femc.streams); });
}

void add_replay(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("replay", "run a failed pass again from its reproducer");
  command->add_option("file", femc.replay, "file that 'femc plan' wrote when a pass failed")->required();
  command->callback([&femc] { femc.code = replay_command(femc.replay, femc.streams); });
}

void add_show(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("show", "list the layout and the actions of a plan");
  command->add_option("plan", femc.show.plan, "plan file")->required();
  command->add_option("--rank", femc.show.rank, "this pipeline rank only");
  command->callback([&femc] { femc.code = show_command(femc.show, femc.streams); });
}

void add_check(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("check", "parse and verify a plan");
  command->add_option("plan", femc.check, "plan file")->required();
  command->callback([&femc] { femc.code = check_command(femc.check, femc.streams); });
}

void add_lint(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("lint", "check schedule files over a grid of sizes");
  LintArguments& lint = femc.lint;
  command->add_option("file", lint.files, "schedule file: a name or a path")->required();
  command->add_option("--p", lint.grid.p, "pipeline ranks: 1..4,8")->capture_default_str();
  command->add_option("--m", lint.grid.m, "microbatches: expressions of p and v")->capture_default_str();
  command->add_option("--v", lint.grid.v, "chunks; without it the first few that the file takes");
  command->add_option("--seconds", lint.grid.seconds, "begin no new point after so long")->capture_default_str();
  command->callback([&femc] { femc.code = lint_command(femc.lint, femc.folders, femc.streams); });
}

void add_timeline(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("timeline", "draw a plan as a Gantt chart, one line a rank");
  TimelineArguments& timeline = femc.timeline;
  const CLI::Range positive(1, 1000), cost(0, 1000), columns(40, 100000);
  command->add_option("plan", timeline.plan, "plan file")->required();
  command->add_option("--program", timeline.program, "program of the plan")->capture_default_str();
  CLI::Option* profile =
      command->add_option("--profile", timeline.profile, "machine that prices the actions: a name or a file");
  const auto add_cost = [&](const char* flags, int& value, const char* doc, const CLI::Range& range) {
    command->add_option(flags, value, doc)->check(range)->capture_default_str()->excludes(profile);
  };
  add_cost("-F,--forward", timeline.forward, "time of a forward", positive);
  add_cost("-I,--input", timeline.input, "time of an input gradient", cost);
  add_cost("-W,--weight", timeline.weight, "time of a weight gradient", cost);
  command->add_flag("--rendezvous", timeline.rendezvous, "senders and receivers wait for each other");
  command->add_option("--width", timeline.width, "columns of the chart")->check(columns)->capture_default_str();
  command->add_option("--html", timeline.html, "write the timeline as an HTML file");
  command->add_option("--trace", timeline.trace, "write the timeline as a Chrome or Perfetto trace (JSON)");
  command->callback([&femc] { femc.code = timeline_command(femc.timeline, femc.streams); });
}

void add_simulate(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("simulate", "say what a plan costs on a machine: time, memory, traffic");
  SimulateArguments& simulate = femc.simulate;
  command->add_option("plan", simulate.plan, "plan file")->required();
  command->add_option("--profile", simulate.profile, "machine: a name or a file")->capture_default_str();
  command->add_option("--program", simulate.program, "program of the plan")->capture_default_str();
  command->add_flag("--asynchronous", simulate.asynchronous, "communication holds up no rank");
  command->add_flag("--json", simulate.json, "print JSON");
  command->callback([&femc] { femc.code = simulate_command(femc.simulate, femc.streams); });
}

void add_memory(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("memory", "say what each rank of a plan holds at its peak, to the byte");
  MemoryArguments& memory = femc.memory;
  command->add_option("plan", memory.plan, "plan file")->required();
  command->add_option("--program", memory.program, "program of the plan")->capture_default_str();
  command->add_option("--rank", memory.rank, "show the blocks that are alive at this pipeline rank's peak");
  command->add_flag("--json", memory.json, "print JSON");
  command->callback([&femc] { femc.code = memory_command(femc.memory, femc.streams); });
}

void add_fit(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("fit", "search the settings that train fastest within a memory limit");
  FitArguments& fit = femc.fit;
  command->add_option("config", fit.config, "configuration file (YAML)")->required();
  command->add_option("--memory", fit.memory,
                      "most bytes of a rank, as 80GiB; without it memory.limit, else what the machine has");
  command->add_option("--profile", fit.profile, "machine: a name or a file")->capture_default_str();
  command->add_option("--set", fit.set, "override a setting: section.key=value")->allow_extra_args(false);
  command->add_option("--fix", fit.fix, "keys that stay as configured: schedule.name,parallel.zero")
      ->allow_extra_args(false);
  command->add_option("--top", fit.top, "how many to show")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_flag("--json", fit.json, "print JSON");
  command->add_option("-o,--output", fit.output, "configuration file to write: the first of the table");
  command->callback([&femc] { femc.code = fit_command(femc.fit, femc.folders, femc.streams); });
}

void add_import(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("import", "make a plan from a schedule file of torch.distributed.pipelining");
  ImportArguments& import = femc.import;
  command->add_option("file", import.file, "schedule file (CSV)")->required();
  command->add_option("--format", femc.format, "format of the file")->check(CLI::IsMember({"torch"}))->required();
  CLI::Option* config = command->add_option("--config", import.config, "configuration file (YAML): model and sizes");
  command->add_option("--set", import.set, "override a setting: section.key=value")->allow_extra_args(false);
  command->add_option("-o,--output", import.output, "plan file to write; without it the plan is printed");
  command->add_flag("--check", import.check, "look at the file alone")->excludes(config);
  command->add_flag("--keep-communication", import.keep_communication, "keep the file's sends and receives");
  command->callback([&femc] { femc.code = import_command(femc.import, femc.streams); });
}

void add_export(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("export", "write a plan as a schedule file of torch.distributed.pipelining");
  command->add_option("plan", femc.exported.plan, "plan file")->required();
  command->add_option("--format", femc.format, "format of the file")->check(CLI::IsMember({"torch"}))->required();
  command->add_option("-o,--output", femc.exported.output, "file to write; without it the file is printed");
  command->add_flag("--compute-only", femc.exported.compute_only, "forwards and backwards alone");
  command->callback([&femc] { femc.code = export_command(femc.exported, femc.streams); });
}

void add_diff(CLI::App& app, Femc& femc) {
  CLI::App* command = app.add_subcommand("diff", "say what differs between two plans");
  command->add_option("a", femc.diff.a, "plan file")->required();
  command->add_option("b", femc.diff.b, "plan file")->required();
  command->add_option("--rank", femc.diff.rank, "this pipeline rank only");
  command->add_flag("--table", femc.diff.table, "show the actions of both side by side");
  command->add_flag("--all", femc.diff.all, "show every difference");
  command->add_flag("--exit-code", femc.diff.exit_code, "exit with 1 where the plans differ");
  command->callback([&femc] { femc.code = diff_command(femc.diff, femc.streams); });
}

void add_references(CLI::App& app, Femc& femc) {
  CLI::App* list = app.add_subcommand("list", "list schedules, actions or passes");
  list->add_option("what", femc.list, "schedules, actions or passes")->required();
  list->callback([&femc] { femc.code = list_command(femc.list, femc.folders, femc.streams); });

  CLI::App* explain = app.add_subcommand("explain", "explain an invariant of the verifier");
  explain->add_option("code", femc.explain, "its code, as V07")->required();
  explain->callback([&femc] { femc.code = explain_command(femc.explain, femc.streams); });

  CLI::App* docs = app.add_subcommand("docs", "write the generated reference pages");
  docs->add_option("folder", femc.docs, "folder to write into")->required();
  docs->callback([&femc] { femc.code = docs_command(femc.docs, femc.folders, femc.streams); });
}

// The parser itself says only that a subcommand is missing.
bool known_command(const CLI::App& app, std::string_view word) {
  if (word.starts_with("-")) return true;
  std::vector<std::string> owned;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    owned.push_back(command->get_name());
  }
  const std::vector<std::string_view> names(owned.begin(), owned.end());
  if (std::ranges::find(names, word) != names.end()) return true;
  std::cerr << "error: there is no command '" << word << "'" << fem::ir::did_you_mean(word, names)
            << "\nRun with --help for more information.\n";
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("femc compiles a configuration and a schedule into a plan, and looks into plans");
  app.require_subcommand(1);
  Femc femc;
  add_plan(app, femc);
  add_replay(app, femc);
  add_show(app, femc);
  add_check(app, femc);
  add_lint(app, femc);
  add_timeline(app, femc);
  add_simulate(app, femc);
  add_memory(app, femc);
  add_fit(app, femc);
  add_import(app, femc);
  add_export(app, femc);
  add_diff(app, femc);
  add_references(app, femc);
  if (argc > 1 && !known_command(app, argv[1])) return kUsage;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kUsage;
  }
  return femc.code;
}
