#include "executor/run_inputs.hpp"

#include <unistd.h>

#include <fstream>

#include "executor/error.hpp"
#include "executor/interpreter.hpp"
#include "ir/memory_blocks.hpp"

namespace fem::exec {
namespace {

void open_data(const ir::Plan& plan, bool read_tokens, RunInputs& inputs) {
  const ir::Settings& settings = plan.settings;
  if (settings.data.train.empty())
    throw ExecutionError("no training data: give --data PREFIX, for the files PREFIX.bin and PREFIX.idx");
  auto train = std::make_shared<IndexedDataset>(settings.data.train, settings.model.vocab);
  if (read_tokens) train->check_tokens();
  inputs.train = SampleStream::training(*train, settings.batch.seq_len, settings.batch.global,
                                        static_cast<std::uint64_t>(settings.data.seed));
  inputs.train_data = std::move(train);
  if (settings.data.eval.empty()) return;
  const ir::Program* program = plan.find("eval");
  if (!program) throw ExecutionError("evaluation data is given, but the plan has no program 'eval'");
  auto eval = std::make_shared<IndexedDataset>(settings.data.eval, settings.model.vocab);
  if (read_tokens) eval->check_tokens();
  inputs.eval = SampleStream::evaluation(*eval, settings.batch.seq_len,
                                         settings.parallel.dp * program->microbatches * settings.batch.micro);
  inputs.eval_data = std::move(eval);
}

// Better now than after the last step. An existing metrics file keeps its content.
void try_outputs(const RunOptions& options) {
  if (!options.save.empty()) {
    make_folder(options.save);
    if (access(options.save.c_str(), W_OK) != 0) throw ExecutionError("cannot write into " + options.save.string());
  }
  if (!options.metrics.empty() && !std::ofstream(options.metrics, std::ios::app))
    throw ExecutionError("cannot write the metrics file " + options.metrics.string());
  if (!options.memory.empty() && !std::ofstream(options.memory, std::ios::app))
    throw ExecutionError("cannot write the memory file " + options.memory.string());
}

}  // namespace

void check_plan(const ir::Plan& plan) {
  const auto& parallel = plan.settings.parallel;
  const auto only_one = [](const char* axis, std::int64_t size) {
    if (size != 1)
      throw ExecutionError("parallel." + std::string(axis) + "=" + std::to_string(size) +
                           ": this version runs " + axis + "=1 only; use pp and dp");
  };
  only_one("tp", parallel.tp);
  only_one("cp", parallel.cp);
  only_one("ep", parallel.ep);
  if (plan.level == ir::Level::Stage)
    throw ExecutionError("the plan is at level " + std::string(ir::name(plan.level)) +
                         ": it has no communication yet; run its passes with femc");
  if (plan.level < ir::Level::Unit && ir::offloads_optimizer(plan.settings))
    throw ExecutionError("the plan is at level " + std::string(ir::name(plan.level)) +
                         ": memory.offload=" + plan.settings.memory.offload + " needs a plan of level unit; its passes "
                         "must contain 'units'");
  if (!plan.find("train")) throw ExecutionError("the plan has no program 'train'");
  if (plan.level == ir::Level::Lane) {
    for (const ir::Program& program : plan.programs)
      for (const ir::RankProgram& rank : program.ranks)
        if (rank.arena == 0)
          throw ExecutionError("the plan is at level lane without an arena: its passes must end with 'arena'");
  }
  check_executable(plan);
}

RunInputs open_inputs(const ir::Plan& plan, const RunOptions& options, bool lead) {
  check_plan(plan);
  RunInputs inputs;
  open_data(plan, lead, inputs);
  if (!options.init.empty() && !options.resume.empty())
    throw ExecutionError("--init starts a run and --resume goes on with one: give one of them");
  if (!options.init.empty()) inputs.weights.emplace(open_weights(options.init, plan.settings));
  if (!options.resume.empty()) {
    inputs.checkpoint.emplace(
        open_checkpoint(options.resume, plan.settings, inputs.train_data->tokens(), &inputs.warnings));
    inputs.updates = inputs.checkpoint->state.step;
    inputs.first_step = inputs.checkpoint->state.consumed_samples / plan.settings.batch.global;
  }
  if (lead) try_outputs(options);
  return inputs;
}

void dump_batches(const ir::Plan& plan, const RunInputs& inputs, const std::filesystem::path& path) {
  const std::int64_t seq_len = plan.settings.batch.seq_len, global = plan.settings.batch.global;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(seq_len)), targets(tokens.size());
  AtomicFile file(path);
  for (std::int64_t step = inputs.first_step; step < plan.settings.run.steps; ++step)
    for (std::int64_t i = 0; i < global; ++i) {
      read_sample(*inputs.train_data, inputs.train->sample(step * global + i), seq_len, tokens, targets);
      file.write(tokens.data(), tokens.size() * sizeof(std::int64_t));
      file.write(&targets.back(), sizeof(std::int64_t));
    }
  file.commit();
}

}  // namespace fem::exec
