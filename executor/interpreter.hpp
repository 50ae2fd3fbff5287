// Executes one rank's programs: a loop over a flat array of actions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/activations.hpp"
#include "executor/comm/communicator.hpp"
#include "executor/comm/progress.hpp"
#include "executor/data/loader.hpp"
#include "executor/lanes/announce.hpp"
#include "executor/lanes/lane_mode.hpp"
#include "executor/lanes/thread_lanes.hpp"
#include "executor/metrics.hpp"
#include "executor/parameters.hpp"
#include "executor/stage_runner.hpp"
#include "executor/topology.hpp"
#include "executor/update.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// What a run of a program is told.
struct StepInput {
  std::int64_t step = 0;    // number of the step, from 1, for messages and the agreement of ranks
  double lr = 0;            // of this update
  std::int64_t update = 1;  // number of this update, from 1
  double loss_scale = 1;    // factor on the gradient of the sum of token losses, a power of two; but for fp16 1
  std::span<const LoadedMicrobatch> batches;    // [microbatches]; empty on a rank without first and last stage
  const std::atomic<bool>* stop = nullptr;      // read at ReduceLoss
};

// What every rank knows afterwards.
struct StepResult {
  StepMetrics metrics;
  double grad_norm = 0;   // of the normalised gradients; 0 in a forward-only program
  bool finite = true;     // loss and norm are finite and some target was valid; else `if finite` actions were skipped
  bool overflow = false;  // loss or norm are not finite
  std::string problem;    // why not finite, for the log
};

// When a batch of actions ran, in nanoseconds of the steady clock.
struct BatchTime {
  std::int64_t begin = 0, end = 0;
};

class Interpreter {
 public:
  // Prepares all programs of the plan for the pipeline coordinate of `comm.rank()`. Throws ExecutionError for an action
  // that this version does not execute. With parameters on Meta it is a dry run: the same actions, no numbers, no
  // batches. All references must outlive the interpreter.
  Interpreter(const ir::Plan& plan, const Topology& topology, Communicator& comm, Parameters& parameters,
              Progress& progress, LaneMode lanes = LaneMode::Threads);

  // Runs a program from its first to its last action. An error carries rank, step and action, and leaves no buffer
  // alive.
  StepResult run(const ir::Program& program, const StepInput& input);

  const BlockPool& pool() const { return activations_.pool(); }
  const BlockPool& host_pool() const { return activations_.host_pool(); }

  // From now on, the times of the last run's batches, in program order, are kept.
  void keep_times() { keeps_times_ = true; }
  std::span<const BatchTime> times() const { return times_; }

  // Buffers alive between programs: 0, or a program leaks.
  std::int64_t alive_buffers() const { return activations_.alive() + update_.alive(); }

 private:
  struct Run {  // of one program
    const ir::Program& program;
    std::span<const ir::Action> actions;
    const StepInput& input;
    LossReduction& losses;
    StepResult result;
  };

  void execute_all(Run& run, const LaneTable& table);
  void execute_batch(Run& run, const LaneTable& table, const LaneTable::Batch& batch);
  void execute_actions(Run& run, std::span<const ir::Action> actions);
  void execute(Run& run, const ir::Action& action);
  void execute_units(Run& run, const ir::Action& action);
  void execute_unit(Run& run, const ir::Action& action, int unit);
  void exchange(std::span<const ir::Action> halves, ir::Lane lane);
  std::size_t program_index(const ir::Program& program) const {
    return static_cast<std::size_t>(&program - plan_.programs.data());
  }
  std::string describe(std::uint32_t action) const;
  const Microbatch& batch(const Run& run, int m) const;
  void reduce_loss(Run& run);
  void norm(Run& run);

  const ir::Plan& plan_;
  const Topology& topology_;
  Communicator& comm_;
  Coordinates here_;
  std::vector<int> pipeline_;  // global rank by pp coordinate
  bool dry_;                   // on the Meta device
  Activations activations_;
  StageRunner stages_;
  Update update_;
  std::vector<LaneTable> tables_;      // by program
  std::vector<Announcer> announcers_;  // likewise, where lanes are threads
  std::vector<LossReduction> losses_;  // likewise
  std::uint64_t norm_bits_ = 0;        // of the last gradient norm
  const Microbatch no_batch_;          // of a rank that reads none
  std::atomic<const ir::RankProgram*> current_ = nullptr;  // what progress_ speaks of; read by other threads
  Progress& progress_;
  ProgressScope describe_;
  bool keeps_times_ = false;
  std::vector<BatchTime> times_;        // by batch
  std::unique_ptr<ThreadLanes> lanes_;  // null where lanes run inline. Last: its threads use the rest
};

// Throws ExecutionError naming the first action of the plan that this version does not execute.
void check_executable(const ir::Plan& plan);

}  // namespace fem::exec
