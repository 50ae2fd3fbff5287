// One rank's whole run: load, steps, evaluation, stop, save.
#pragma once

#include <cstdint>
#include <memory>

#include "executor/comm/communicator.hpp"
#include "executor/data/loader.hpp"
#include "executor/interpreter.hpp"
#include "executor/loss_scaler.hpp"
#include "executor/parameters.hpp"
#include "executor/reporter.hpp"
#include "executor/run_inputs.hpp"
#include "executor/run_options.hpp"
#include "executor/tracking_allocator.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// What a run came to, the same on every rank.
struct RunSummary {
  std::int64_t steps = 0;    // position after the run: steps done since the beginning, skipped ones included
  std::int64_t updates = 0;  // of the weights
  std::int64_t skipped = 0;  // steps that updated nothing, since the beginning too
  double loss = 0;           // of the last step
  double eval_loss = 0;      // of the last evaluation; NaN: none
  bool stopped = false;      // before run.steps, because a rank was asked to
  std::string failure;       // why the run was given up; then it was neither evaluated nor saved
};

class Trainer {
 public:
  // Allocates and fills the parameters: from the seed, or from the weights or checkpoint in `inputs`.
  // All references must outlive the trainer.
  Trainer(const ir::Plan& plan, const RunInputs& inputs, const RunOptions& options, Communicator& comm);

  // To the last step or an agreed stop; then evaluation and save. An error carries rank, step and action.
  RunSummary run();

  const Parameters& parameters() const { return parameters_; }

 private:
  LoaderOptions loader_options(std::int64_t microbatches) const;
  bool reads_batch() const;
  StepResult train_step(std::int64_t step);
  void account(std::int64_t step, const StepResult& result);
  void evaluate(std::int64_t steps_done);
  void save(std::int64_t steps_done);
  void report_memory();

  const ir::Plan& plan_;
  const RunInputs& inputs_;
  const RunOptions& options_;
  Communicator& comm_;
  Topology topology_;
  Coordinates here_;
  CountAllocations allocations_;  // from before the first buffer
  Parameters parameters_;
  Interpreter interpreter_;
  std::unique_ptr<Loader> loader_;      // null on a rank without first and last stage
  std::unique_ptr<Reporter> reporter_;  // rank 0 only
  LossScaler scaler_;
  RunSummary summary_;
  std::int64_t skips_in_a_row_ = 0;
};

}  // namespace fem::exec
