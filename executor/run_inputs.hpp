// Everything a run reads, opened and checked before its first step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/data/samples.hpp"
#include "executor/run_options.hpp"
#include "executor/weights/checkpoint.hpp"
#include "executor/weights/model_weights.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// Shared by the ranks of a process; nothing in it changes during a run.
struct RunInputs {
  std::shared_ptr<const IndexedDataset> train_data, eval_data;  // eval_data: null without evaluation
  std::optional<SampleStream> train, eval;
  std::optional<TensorFolder> weights;    // of --init
  std::optional<Checkpoint> checkpoint;   // of --resume
  std::vector<std::string> warnings;

  // Where the run starts.
  std::int64_t first_step = 0, updates = 0;
};

// ExecutionError where this version does not execute the plan.
void check_plan(const ir::Plan& plan);

// Opens data, weights or checkpoint. ExecutionError, one sentence, for whatever makes the run impossible: a plan that
// this version does not execute, no data, bad files. `read_tokens`: read the training tokens once to find bad ids (one
// process of a run is enough).
RunInputs open_inputs(const ir::Plan& plan, const RunOptions& options, bool read_tokens);

// Writes the training batches of steps [first_step, run.steps) to a file: int64 little-endian
// [steps, batch.global, seq_len + 1], the samples of a step in the order of the global batch.
void dump_batches(const ir::Plan& plan, const RunInputs& inputs, const std::filesystem::path& file);

}  // namespace fem::exec
