#include "executor/run_command.hpp"

#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "executor/agreement.hpp"
#include "executor/dry_run.hpp"
#include "executor/error.hpp"
#include "executor/run_inputs.hpp"
#include "executor/run_options.hpp"
#include "executor/stop_watch.hpp"
#include "executor/supervisor.hpp"
#include "executor/tracking_allocator.hpp"
#include "executor/world.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"

namespace fem::exec {
namespace {

// What ends the command with a message that is already written.
struct Exit {
  int code;
};

[[noreturn]] void stop_with(int code, const std::string& message, std::ostream& err) {
  err << "femrun: error: " << message << std::endl;
  throw Exit{code};
}

// Runs `body`; an ExecutionError in it ends the command with this code.
template <class Body>
auto or_exit(int code, std::ostream& err, const Body& body) {
  try {
    return body();
  } catch (const ExecutionError& error) {
    // What another process is to blame for, that process says; the communicator adds a line on the way out.
    if (error.message().starts_with("stopped because ")) throw Exit{code};
    stop_with(code, error.what(), err);
  }
}

std::string read_text(const std::filesystem::path& path, std::ostream& err) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) stop_with(kExitInput, "cannot read the plan " + path.string(), err);
  return text.str();
}

[[noreturn]] void refuse(const ir::DiagnosticSink& sink, std::ostream& err) {
  err << sink.text() << std::flush;
  throw Exit{kExitInput};
}

struct CheckedPlan {
  ir::Plan plan;
  std::string rejection;  // the verifier's messages; empty: verified, or left to rank 0
};

// The plan with the command's settings. `verify`: false where another rank does it.
CheckedPlan read_plan(const RunCommand& command, bool verify, std::ostream& err) {
  const ir::SourceText source(command.plan.string(), read_text(command.plan, err));
  ir::DiagnosticSink sink;
  ir::PlanLocations locations;
  std::optional<ir::Plan> plan = ir::parse_plan(source, sink, &locations);
  if (!plan) refuse(sink, err);
  if (verify && !ir::verify(*plan, sink, {&source, &locations})) return {*std::move(plan), sink.text()};
  for (const std::string& assignment : command.overrides) override_setting(plan->settings, assignment, sink);
  if (!sink.has_errors()) check_run_settings(plan->settings, sink);
  if (sink.has_errors()) refuse(sink, err);
  return {*std::move(plan), {}};
}

// The backend asked for, or the one that fits who started this process.
Backend choose_backend(const RunCommand& command, const LaunchEnvironment& launch) {
  if (!command.backend.empty()) return backend_from_name(command.backend);
  switch (launch.launcher) {
    case Launcher::none: return Backend::local;
    case Launcher::open_mpi:
    case Launcher::mpich: return Backend::mpi;
    case Launcher::slurm: return launch.world_size == 1 ? Backend::local : Backend::mpi;  // one task: a shell in a job
    case Launcher::torchrun: return Backend::nccl;
  }
  return Backend::local;
}

void check_device(const RunCommand& command, Backend backend, const LaunchEnvironment& launch) {
  const bool gpu_wanted = command.device == "cuda" || backend == Backend::nccl;
  if (launch.launcher == Launcher::torchrun) check_torchrun(launch, gpu_available());
  if (!gpu_wanted) return;
  if (!gpu_available())
    throw ExecutionError("no GPU: this build has no CUDA library, or no device answers; use --device cpu with "
                         "--backend local or mpi");
  throw ExecutionError("units run on the CPU in this version: use --device cpu with --backend local or mpi");
}

// Each process would train all ranks.
void check_local(const LaunchEnvironment& launch) {
  if (launch.world_size > 1)
    throw ExecutionError("backend local runs all ranks in one process, but " + std::string(name(launch.launcher)) +
                         " started " + launch.size_variable + "=" + std::to_string(launch.world_size) +
                         " processes: use --backend mpi, or start femrun alone");
}

// A dry run has no data, no weights and no other processes, and leaves nothing behind but figures.
void check_dry_run(const RunCommand& command) {
  const bool dry = command.device == "meta";
  if (!dry && command.rank) throw ExecutionError("--rank belongs to a dry run: give --device meta too");
  const std::pair<const char*, bool> given[] = {
      {"--backend", !command.backend.empty()}, {"--init", !command.init.empty()},
      {"--resume", !command.resume.empty()},   {"--save", !command.save.empty()},
      {"--metrics", !command.metrics.empty()}, {"--dump-batches", !command.dump_batches.empty()},
      {"--trace", !command.trace.empty()},     {"--poison", command.poison}};
  for (const auto& [option, is_given] : given)
    if (dry && is_given)
      throw ExecutionError(std::string(option) + " does not go with --device meta: a dry run has no data, no weights "
                           "and no other processes; it takes --rank, --memory and --set");
}

int run_dry(const RunCommand& command, const ir::Plan& plan, const LaunchEnvironment& launch, std::ostream& out,
            std::ostream& err) {
  if (launch.world_size > 1)
    stop_with(kExitInput, "a dry run is one process, but " + std::string(name(launch.launcher)) + " started " +
                              launch.size_variable + "=" + std::to_string(launch.world_size) + ": start femrun alone",
              err);
  or_exit(kExitInput, err, [&] { check_dry_run_plan(plan, command.rank); });
  const std::vector<DryRank> ranks = or_exit(kExitRuntime, err, [&] { return dry_run(plan, command.rank); });
  if (!command.memory.empty())
    or_exit(kExitInput, err, [&] {
      write_memory_file(command.memory, "meta", std::vector<RankMemoryRow>(ranks.begin(), ranks.end()));
    });
  out << "dry run of the plan: one rank of each pipeline coordinate, the first of " << plan.settings.parallel.dp
      << " alike\n" << dry_run_table(ranks) << std::flush;
  return kExitFine;
}

RunOptions run_options(const RunCommand& command, Backend backend, std::ostream& out) {
  RunOptions options;
  options.init = command.init;
  options.resume = command.resume;
  options.save = command.save;
  options.metrics = command.metrics;
  options.memory = command.memory;
  options.trace = command.trace;
  options.lanes = command.lanes == "inline" ? LaneMode::Inline : LaneMode::Threads;
  options.poison = command.poison;
  options.backend = name(backend);
  options.out = &out;
  options.stop = command.stop;
  return options;
}

int train(const RunCommand& command, const CheckedPlan& checked, Backend backend, const LaunchEnvironment& launch,
          std::ostream& out, std::ostream& err) {
  const ir::Plan& plan = checked.plan;
  const RunOptions options = run_options(command, backend, out);
  if (!options.memory.empty()) track_allocations();
  World world = or_exit(kExitRuntime, err, [&] {
    return make_world(backend, Topology(plan), launch, CommOptions{command.timeout});
  });
  std::optional<RunInputs> inputs;
  std::string problem = checked.rejection;
  if (problem.empty()) try {
      inputs.emplace(open_inputs(plan, options, launch.rank == 0));
      if (!command.dump_batches.empty() && launch.rank == 0) dump_batches(plan, *inputs, command.dump_batches);
    } catch (const ExecutionError& error) {
      problem = std::string("femrun: error: ") + error.what() + "\n";
    }
  return or_exit(kExitRuntime, err, [&] {
    const bool alone = launch.world_size == 1;
    const Agreement agreement = alone ? Agreement{problem.empty(), problem}
                                      : agree_to_start(*world[0], ir::plan_digest(plan), problem);
    err << agreement.message << std::flush;
    if (!agreement.start) return kExitInput;
    std::optional<StopWatch> watch;
    if (!alone && command.stop) watch.emplace(*world[0], Topology(plan), *command.stop, err);
    run_world(world, plan, *inputs, options);
    return kExitFine;
  });
}

}  // namespace

int run_command(const RunCommand& command, std::ostream& out, std::ostream& err) try {
  or_exit(kExitUsage, err, [&] { check_dry_run(command); });
  const LaunchEnvironment launch = or_exit(kExitInput, err, [] { return detect_launch(); });
  const Backend backend = or_exit(kExitInput, err, [&] { return choose_backend(command, launch); });
  // One process a host speaks of what all of them find wrong.
  std::ostream silent(nullptr);
  std::ostream& speaker = launch.local_rank == 0 ? err : silent;
  const CheckedPlan checked = read_plan(command, launch.rank == 0, speaker);
  const ir::Plan& plan = checked.plan;
  if (!checked.rejection.empty() && launch.world_size == 1) {
    err << checked.rejection << std::flush;
    return kExitInput;
  }
  if (command.device == "meta") return run_dry(command, plan, launch, out, speaker);
  or_exit(kExitRuntime, speaker, [&] { check_device(command, backend, launch); });
  const int ranks = or_exit(kExitInput, speaker, [&] { return Topology(plan.settings).size(); });
  if (backend == Backend::local) {
    or_exit(kExitInput, speaker, [&] { check_local(launch); });
  } else if (launch.launcher == Launcher::none && backend == Backend::mpi) {
    return or_exit(kExitRuntime, err, [&] { return run_under_mpirun(command.command_line, ranks); });
  } else {
    or_exit(kExitInput, speaker, [&] { check_world_size(launch, ranks); });
  }
  return train(command, checked, backend, launch, out, err);
} catch (const Exit& exit) {
  return exit.code;
} catch (const std::exception& error) {
  err << "femrun: error: " << error.what() << std::endl;
  return kExitRuntime;
}

}  // namespace fem::exec
