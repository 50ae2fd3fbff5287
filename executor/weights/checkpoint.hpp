// Checkpoints: what a run writes at its end or at a stop, and what it needs to go on, in any layout.
//
//   DIR/latest                                       "step-00000020", for people and scripts
//   DIR/step-00000020/config.json                    Hugging Face Llama
//   DIR/step-00000020/model.safetensors              or model-00001-of-0000N.safetensors, ... and an index
//   DIR/step-00000020/optimizer.safetensors          the same; fp32 NAME.master, NAME.exp_avg, NAME.exp_avg_sq
//   DIR/step-00000020/state.json                     step, position in the data, settings
//   DIR/step-00000020/complete                       written last: names and sizes of all files
//
// Names are Hugging Face's and tensors are whole, so nothing depends on pp, dp, tp: any layout reads any other's.
// Writing: rank 0 calls begin_checkpoint; barrier; one data-parallel rank (dp = 0) of every pipeline rank calls
// write_checkpoint_shard; barrier; rank 0 calls finish_checkpoint. Until then the checkpoint before it counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/loss_scaler.hpp"
#include "executor/weights/safetensors.hpp"
#include "executor/weights/tensor_folder.hpp"
#include "ir/settings.hpp"

namespace fem::exec {

// Where a run stands.
struct TrainingState {
  std::int64_t step = 0;              // optimizer steps done
  std::int64_t consumed_samples = 0;  // position in the training stream
  std::int64_t train_tokens = 0;      // size of the training corpus
  std::map<std::string, std::string> settings;  // "section.key" -> text, all of them
  LossScale loss_scale;                         // of fp16
  std::int64_t skips_in_a_row = 0;              // steps skipped since the last update
};
TrainingState make_state(const ir::Settings& settings, std::int64_t step, std::int64_t consumed_samples,
                         std::int64_t train_tokens);

// One parameter of a rank: its Hugging Face name, the working copy, and the fp32 state of AdamW; all of one shape.
struct CheckpointParam {
  std::string name;
  at::Tensor weight, master, exp_avg, exp_avg_sq;
};
std::string master_name(const std::string& name);      // NAME.master
std::string exp_avg_name(const std::string& name);     // NAME.exp_avg
std::string exp_avg_sq_name(const std::string& name);  // NAME.exp_avg_sq

// Makes an empty DIR/step-N. What an interrupted save left there is removed; a complete checkpoint of the same step is
// set aside and stays valid until the new one is.
void begin_checkpoint(const std::filesystem::path& dir, std::int64_t step);

// Writes shard `part` of `parts`. A tied head's weight is left out (the embedding stands for both).
void write_checkpoint_shard(const std::filesystem::path& dir, const ir::Settings& settings, std::int64_t step, int part,
                            int parts, std::span<const CheckpointParam> params);

// Checks that the shards hold every tensor of the model exactly once, writes indexes, config and state, then the marker
// and `latest`. Steps beyond this one belong to a course that the run has left (an earlier run into the same folder, or
// a resume from an older step): they are renamed to step-N.abandoned, so that a resume takes what was written last; the
// result has a line for each.
std::vector<std::string> finish_checkpoint(const std::filesystem::path& dir, const ir::Settings& settings, int parts,
                                           const TrainingState& state);

// The newest complete step in DIR (or DIR itself, if it is such a step); nullopt where there is none. Incomplete newer
// ones are skipped with a line in *warnings each. One with its marker whose files are missing or have another size
// counts as incomplete.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& dir,
                                                       std::vector<std::string>* warnings = nullptr);

// A complete checkpoint to go on from.
struct Checkpoint {
  std::filesystem::path path;
  TrainingState state;
  TensorFolder weights, optimizer;
};

// Opens the newest complete checkpoint of DIR; error where there is none. Refuses, with both values: a model, global
// batch, sequence length, data seed or corpus other than those it was written with (the stream could not go on without
// gap or repeat). Other settings that bear on the numbers and differ get a line in *warnings.
// Read parameters with load_into(stored_name(...)) and the functions above, e.g. master_name(stored_name(...)).
Checkpoint open_checkpoint(const std::filesystem::path& dir, const ir::Settings& settings, std::int64_t train_tokens,
                           std::vector<std::string>* warnings);

}  // namespace fem::exec
