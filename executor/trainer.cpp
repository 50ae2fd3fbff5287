#include "executor/trainer.hpp"

#include <cmath>
#include <limits>

#include "executor/error.hpp"
#include "executor/learning_rate.hpp"
#include "executor/load_save.hpp"
#include "executor/memory_report.hpp"
#include "executor/trace.hpp"
#include "ir/replicas.hpp"

namespace fem::exec {

Trainer::Trainer(const ir::Plan& plan, const RunInputs& inputs, const RunOptions& options, Communicator& comm)
    : plan_(plan),
      inputs_(inputs),
      options_(options),
      comm_(comm),
      topology_(plan),
      here_(topology_.coordinates(comm.rank())),
      parameters_(plan, here_.pp,
                  {comm.group_rank(ir::piece_group(plan.settings)), comm.group_size(ir::piece_group(plan.settings))}),
      interpreter_(plan, topology_, comm, parameters_, comm.progress(), options.lanes),
      scaler_(plan.settings) {
  if (!options.trace.empty()) interpreter_.keep_times();
  parameters_.poison(options.poison);
  fill_parameters(plan.settings, inputs, parameters_);
  if (comm.rank() == 0) reporter_ = std::make_unique<Reporter>(plan, inputs, options);
  if (reads_batch())
    loader_ = std::make_unique<Loader>(inputs.train_data, *inputs.train,
                                       loader_options(plan.find("train")->microbatches),
                                       inputs.first_step * plan.settings.batch.global);
  summary_.steps = inputs.first_step;
  summary_.updates = inputs.updates;
  summary_.skipped = inputs.first_step - inputs.updates;
  summary_.loss = summary_.eval_loss = std::numeric_limits<double>::quiet_NaN();
  if (!inputs.checkpoint) return;
  scaler_.restore(inputs.checkpoint->state.loss_scale);
  skips_in_a_row_ = inputs.checkpoint->state.skips_in_a_row;
}

bool Trainer::reads_batch() const {
  for (const ir::Stage& stage : plan_.stages)
    if (stage.pp == here_.pp && (stage.prev < 0 || stage.next < 0)) return true;
  return false;
}

LoaderOptions Trainer::loader_options(std::int64_t microbatches) const {
  LoaderOptions options;  // tokens and targets on both ends of the pipeline: they compare what they read
  options.share = {plan_.settings.batch.micro, microbatches, static_cast<int>(plan_.settings.parallel.dp), here_.dp};
  return options;
}

RunSummary Trainer::run() {
  if (reporter_) reporter_->header();
  const std::int64_t steps = plan_.settings.run.steps, interval = plan_.settings.run.eval_interval;
  std::int64_t evaluated = -1;
  while (summary_.steps < steps && !summary_.stopped) {
    const std::int64_t step = summary_.steps;
    const StepResult result = train_step(step);
    summary_.steps = step + 1;
    summary_.stopped = result.metrics.stop;
    if (!options_.trace.empty() && (summary_.stopped || summary_.steps == steps))
      write_trace(options_.trace, *plan_.find("train"), interpreter_.times(), topology_, comm_);
    account(step, result);
    if (!summary_.failure.empty()) return summary_;
    if (interval > 0 && summary_.steps % interval == 0 && !summary_.stopped) evaluate(evaluated = summary_.steps);
  }
  summary_.stopped = summary_.stopped && summary_.steps < steps;
  if (!summary_.stopped && evaluated != summary_.steps) evaluate(summary_.steps);
  if (summary_.stopped && reporter_) reporter_->line("stopping after step " + std::to_string(summary_.steps));
  if (!options_.memory.empty()) report_memory();
  if (!options_.save.empty()) save(summary_.steps);
  return summary_;
}

StepResult Trainer::train_step(std::int64_t step) {
  StepInput input;
  input.step = step + 1;  // as progress lines count
  input.lr = learning_rate(plan_.settings, summary_.updates);
  input.update = summary_.updates + 1;
  input.loss_scale = scaler_.factor();
  input.stop = options_.stop;
  if (loader_) input.batches = loader_->next().microbatches;
  return interpreter_.run(*plan_.find("train"), input);
}

void Trainer::account(std::int64_t step, const StepResult& result) {
  StepReport report{step, result, learning_rate(plan_.settings, summary_.updates)};
  if (scaler_.on()) report.loss_scale = scaler_.scale();
  summary_.loss = result.metrics.loss();
  if (result.finite) {
    ++summary_.updates;
    skips_in_a_row_ = 0;
    scaler_.updated();
  } else {
    ++summary_.skipped;
    ++skips_in_a_row_;
    if (result.overflow) scaler_.overflowed();
  }
  report.skipped = summary_.skipped;
  if (scaler_.on()) report.next_loss_scale = scaler_.scale();
  if (reporter_) reporter_->step(report);
  if (skips_in_a_row_ < plan_.settings.run.skip_limit) return;
  summary_.failure =
      std::to_string(skips_in_a_row_) + " steps in a row were skipped (run.skip_limit); the last: " + result.problem;
  if (scaler_.on()) summary_.failure += "; the loss scale is down to " + std::to_string(scaler_.scale());
}

void Trainer::evaluate(std::int64_t steps_done) {
  if (!inputs_.eval) return;
  const ir::Program& program = *plan_.find("eval");
  StepMetrics total;
  const std::int64_t batches = std::min(plan_.settings.run.eval_steps, inputs_.eval->batches());
  for (std::int64_t i = 0; i < batches; ++i) {
    StepInput input;
    input.step = steps_done;
    input.stop = options_.stop;
    LoadedStep loaded;
    if (reads_batch()) {
      loaded = load_step(*inputs_.eval_data, *inputs_.eval, loader_options(program.microbatches), i);
      input.batches = loaded.microbatches;
    }
    const StepResult result = interpreter_.run(program, input);
    total.loss_sum += result.metrics.loss_sum;
    total.tokens += result.metrics.tokens;
    summary_.stopped = summary_.stopped || result.metrics.stop;
  }
  summary_.eval_loss = total.loss();
  if (reporter_) reporter_->evaluation(steps_done, total);
}

void Trainer::report_memory() {
  const RankMemory memory =
      measure(parameters_, interpreter_.pool(), interpreter_.host_pool(), comm_, allocations_.counter());
  write_memory_report(options_.memory, memory, topology_, comm_);
}

void Trainer::save(std::int64_t steps_done) {
  TrainingState state = make_state(plan_.settings, summary_.updates, steps_done * plan_.settings.batch.global,
                                   inputs_.train_data->tokens());
  state.loss_scale = scaler_.state();
  state.skips_in_a_row = skips_in_a_row_;
  save_checkpoint(plan_, options_.save, state, parameters_, here_, comm_);
  if (reporter_) reporter_->line("saved to " + options_.save.string());
}

}  // namespace fem::exec
