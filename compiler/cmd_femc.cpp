// femc: reads the command line, calls the compiler library.
#include <iostream>

#include <CLI/CLI.hpp>

#include "compiler/commands.hpp"

int main(int argc, char** argv) {
  using namespace fem::compiler;
  CLI::App app("femc compiles a configuration and a schedule into a plan, and looks into plans");
  app.require_subcommand(1);
  const Streams streams{std::cout, std::cerr};
  const ScheduleFolders folders = default_schedule_folders();
  int code = kSuccess;

  PlanArguments plan;
  CLI::App* command = app.add_subcommand("plan", "compile a configuration into a plan");
  command->add_option("config", plan.config, "configuration file (YAML)")->required();
  command->add_option("-o,--output", plan.output, "plan file to write; without it the plan is printed");
  command->add_option("--set", plan.set, "override a setting: section.key=value")->allow_extra_args(false);
  command->add_option("--passes", plan.passes, "pass pipeline: name{option=value},name");
  command->add_option("--print-after", plan.print_after, "print the plan after this pass to the error output");
  command->callback([&] { code = plan_command(plan, folders, streams); });

  ShowArguments show;
  command = app.add_subcommand("show", "list the actions of a plan");
  command->add_option("plan", show.plan, "plan file")->required();
  command->add_option("--rank", show.rank, "this pipeline rank only");
  command->callback([&] { code = show_command(show, streams); });

  std::string check;
  command = app.add_subcommand("check", "parse and verify a plan");
  command->add_option("plan", check, "plan file")->required();
  command->callback([&] { code = check_command(check, streams); });

  TimelineArguments timeline;
  command = app.add_subcommand("timeline", "draw a plan as a Gantt chart, one line a rank");
  command->add_option("plan", timeline.plan, "plan file")->required();
  command->add_option("--program", timeline.program, "program of the plan")->capture_default_str();
  const CLI::Range cost(0, 1000);
  command->add_option("-F,--forward", timeline.forward, "time of a forward")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("-I,--input", timeline.input, "time of an input gradient")->check(cost)->capture_default_str();
  command->add_option("-W,--weight", timeline.weight, "time of a weight gradient")->check(cost)->capture_default_str();
  command->add_flag("--rendezvous", timeline.rendezvous, "senders and receivers wait for each other");
  command->add_option("--width", timeline.width, "columns of the chart")->check(CLI::Range(40, 100000))->capture_default_str();
  command->callback([&] { code = timeline_command(timeline, streams); });

  std::string list;
  command = app.add_subcommand("list", "list schedules, actions or passes");
  command->add_option("what", list, "schedules, actions or passes")->required();
  command->callback([&] { code = list_command(list, folders, streams); });

  std::string explain;
  command = app.add_subcommand("explain", "explain an invariant of the verifier");
  command->add_option("code", explain, "its code, as V07")->required();
  command->callback([&] { code = explain_command(explain, streams); });

  std::string docs;
  command = app.add_subcommand("docs", "write the generated reference pages");
  command->add_option("folder", docs, "folder to write into")->required();
  command->callback([&] { code = docs_command(docs, folders, streams); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kUsage;
  }
  return code;
}
