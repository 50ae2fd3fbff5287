#include <algorithm>

#include <fmt/format.h>

#include "executor/error.hpp"
#include "executor/weights/checkpoint.hpp"
#include "executor/weights/checkpoint_folder.hpp"
#include "executor/weights/hf_config.hpp"
#include "executor/weights/model_weights.hpp"

namespace fem::exec {
namespace {

namespace fs = std::filesystem;

void check_param(const CheckpointParam& param) {
  for (const at::Tensor& tensor : {param.master, param.exp_avg, param.exp_avg_sq}) {
    FEM_CHECK(tensor.defined() && tensor.sizes() == param.weight.sizes() && tensor.scalar_type() == at::kFloat,
              "optimizer state of " + param.name + " must be fp32 and of shape " + shape_text(param.weight.sizes()));
  }
}

std::vector<std::string> set_aside_later_steps(const fs::path& dir, std::int64_t step) {
  std::vector<std::string> lines;
  for (const fs::path& path : list_folder(dir)) {
    const std::optional<std::int64_t> other = parse_step_name(path.filename().string());
    if (!other || *other <= step) continue;
    const fs::path abandoned = dir / (step_name(*other) + kAbandonedEnding);
    remove_tree(abandoned);
    rename_path(path, abandoned);
    lines.push_back(
        fmt::format("{} lies beyond step {} and is now {}", path.string(), step, abandoned.filename().string()));
  }
  return lines;
}

}  // namespace

std::string master_name(const std::string& name) { return name + ".master"; }
std::string exp_avg_name(const std::string& name) { return name + ".exp_avg"; }
std::string exp_avg_sq_name(const std::string& name) { return name + ".exp_avg_sq"; }

std::vector<ModelTensor> optimizer_tensors(const ir::Settings& settings) {
  std::vector<ModelTensor> tensors;
  for (const ModelTensor& tensor : model_tensors(settings)) {
    for (const auto name_of : {master_name, exp_avg_name, exp_avg_sq_name}) {
      tensors.push_back({name_of(tensor.name), tensor.shape});
    }
  }
  return tensors;
}

TrainingState make_state(const ir::Settings& settings, std::int64_t step, std::int64_t consumed_samples,
                         std::int64_t train_tokens) {
  TrainingState state{.step = step, .consumed_samples = consumed_samples, .train_tokens = train_tokens};
  for (const ir::SettingInfo& row : ir::setting_table()) {
    state.settings[fmt::format("{}.{}", row.section, row.key)] = ir::setting_text(settings, row);
  }
  return state;
}

void begin_checkpoint(const fs::path& dir, std::int64_t step) {
  const fs::path folder = dir / step_name(step), replaced = folder.string() + kReplacedEnding;
  make_folder(dir);
  if (path_exists(folder)) {
    if (incomplete_reason(folder).empty()) {
      remove_tree(replaced);
      rename_path(folder, replaced);
    } else {
      remove_tree(folder);
    }
  }
  make_folder(folder);
}

void write_checkpoint_shard(const fs::path& dir, const ir::Settings& settings, std::int64_t step, int part, int parts,
                            std::span<const CheckpointParam> params) {
  const fs::path folder = dir / step_name(step);
  std::vector<NamedTensor> weights, optimizer;
  for (const CheckpointParam& param : params) {
    if (stored_name(settings, param.name) != param.name) continue;
    check_param(param);
    weights.push_back({param.name, param.weight});
    optimizer.push_back({master_name(param.name), param.master});
    optimizer.push_back({exp_avg_name(param.name), param.exp_avg});
    optimizer.push_back({exp_avg_sq_name(param.name), param.exp_avg_sq});
  }
  write_safetensors(folder / shard_name("model", part, parts), weights);
  write_safetensors(folder / shard_name("optimizer", part, parts), optimizer);
}

std::vector<std::string> finish_checkpoint(const fs::path& dir, const ir::Settings& settings, int parts,
                                           const TrainingState& state) {
  const fs::path folder = dir / step_name(state.step);
  for (const char* stem : {"model", "optimizer"}) write_tensor_index(folder, stem, parts);
  check_tensors(TensorFolder(folder, "model"), model_tensors(settings));
  check_tensors(TensorFolder(folder, "optimizer"), optimizer_tensors(settings));
  write_hf_config(folder / "config.json", settings);
  write_state(folder, state);
  write_marker(folder);
  remove_tree(folder.string() + kReplacedEnding);
  write_file(dir / kLatestFile, step_name(state.step) + "\n");
  return set_aside_later_steps(dir, state.step);
}

}  // namespace fem::exec
