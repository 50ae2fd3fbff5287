// femrun PLAN: trains what the plan says. Parses the command line; executor/run_command.hpp does the rest.
#include <CLI/CLI.hpp>

#include <iostream>
#include <string>
#include <vector>

#include "executor/run_command.hpp"
#include "executor/stop_signal.hpp"

namespace {

using fem::exec::RunCommand;

// An option that is short for --set KEY=value.
void add_setting(CLI::App& app, RunCommand& command, const std::string& option, const std::string& key,
                 const std::string& doc) {
  app.add_option_function<std::string>(
         option, [&command, key](const std::string& value) { command.overrides.push_back(key + "=" + value); },
         doc + " (" + key + ")")
      ->type_name("VALUE");
}

void add_options(CLI::App& app, RunCommand& command, double& timeout) {
  app.add_option("PLAN", command.plan, "plan file written by femc")->required();
  app.add_option("--backend", command.backend,
                 "local (ranks are threads), mpi (processes; starts mpirun where no launcher did) or nccl; by default "
                 "what the launcher asks for, local without one")
      ->check(CLI::IsMember({"local", "mpi", "nccl"}));
  app.add_option("--device", command.device,
                 "cpu, cuda, or meta: a dry run that says what each rank would hold, for any size, without data")
      ->check(CLI::IsMember({"cpu", "cuda", "meta"}));
  app.add_option("--rank", command.rank, "of a dry run: this pipeline rank alone");
  app.add_option_function<std::vector<std::string>>(
         "--set",
         [&command](const std::vector<std::string>& texts) {
           command.overrides.insert(command.overrides.end(), texts.begin(), texts.end());
         },
         "override a setting that is not part of the plan, as section.key=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  add_setting(app, command, "--steps", "run.steps", "optimizer steps");
  add_setting(app, command, "--lr", "optimizer.lr", "peak learning rate");
  add_setting(app, command, "--seed", "run.seed", "seed of the initial weights");
  add_setting(app, command, "--data", "data.train", "path prefix of the training tokens");
  add_setting(app, command, "--eval-data", "data.eval", "path prefix of the held-out tokens");
  app.add_option("--save", command.save, "folder for the checkpoint at the end or at a stop");
  auto* init = app.add_option("--init", command.init, "folder of weights to start from");
  app.add_option("--resume", command.resume, "folder of checkpoints to go on from")->excludes(init);
  app.add_option("--metrics", command.metrics, "file for metrics, one JSON object a line");
  app.add_option("--timeout", timeout, "seconds that a rank waits for another before it gives up")
      ->check(CLI::PositiveNumber);
  app.add_option("--dump-batches", command.dump_batches,
                 "file for the run's tokens: int64 [steps, batch.global, seq_len + 1]");
  app.add_option("--memory", command.memory, "file for what each rank's memory came to (JSON)");
  app.add_option("--trace", command.trace,
                 "file for when each action of the last step ran, by rank and lane (JSON that Perfetto and "
                 "chrome://tracing open)");
  app.add_option("--lanes", command.lanes, "of a plan with lanes: a thread for each, or all inline in program order")
      ->check(CLI::IsMember({"threads", "inline"}))
      ->capture_default_str();
  app.add_flag("--poison", command.poison, "fill released parameters with NaN, so that a use after the release shows");
}

}  // namespace

int main(int argc, char** argv) {
  RunCommand command;
  command.command_line.assign(argv, argv + argc);
  CLI::App app(
      "femrun trains what a plan says. SIGINT and SIGTERM stop it after a step and save; a second one ends it.");
  double timeout = 60;
  add_options(app, command, timeout);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? fem::exec::kExitFine : fem::exec::kExitUsage;
  }
  command.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000));
  command.stop = &fem::exec::watch_stop_signals();
  return fem::exec::run_command(command, std::cout, std::cerr);
}
