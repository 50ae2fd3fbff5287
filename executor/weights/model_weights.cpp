#include "executor/weights/model_weights.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "executor/error.hpp"
#include "executor/weights/checkpoint.hpp"
#include "executor/weights/hf_config.hpp"
#include "ir/units.hpp"

namespace fem::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeadName = "lm_head.weight";

// Buffers of old Llama exports: computed, not learned.
bool is_rotary_buffer(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

void refuse_unknown_tensors(const TensorFolder& folder, const ir::Settings& settings,
                            const std::vector<ModelTensor>& expected) {
  std::set<std::string, std::less<>> known;
  for (const ModelTensor& tensor : expected) known.insert(tensor.name);
  for (const std::string& name : folder.names()) {
    const bool ignored = is_rotary_buffer(name) || (settings.model.tied && name == kHeadName);
    if (!ignored && !known.contains(name)) {
      throw ExecutionError(
          fmt::format("{}: tensor \"{}\" is not part of the plan's model", folder.file_of(name), name));
    }
  }
}

}  // namespace

std::vector<ModelTensor> model_tensors(const ir::Settings& settings) {
  const ir::UnitDims dims = ir::unit_dims(settings);
  std::vector<ModelTensor> tensors;
  for (std::int64_t unit = 0; unit < ir::unit_count(settings); ++unit) {
    for (const ir::ParamInfo& param : ir::info(ir::unit_kind(settings, unit)).params) {
      std::string name = ir::param_hf_name(param, ir::unit_layer(unit));
      if (settings.model.tied && name == kHeadName) continue;
      std::vector<std::int64_t> shape{param.rows(dims)};
      if (param.cols(dims) > 0) shape.push_back(param.cols(dims));
      tensors.push_back({std::move(name), std::move(shape)});
    }
  }
  return tensors;
}

std::string stored_name(const ir::Settings& settings, const std::string& hf_name) {
  if (!settings.model.tied || hf_name != kHeadName) return hf_name;
  return ir::param_hf_name(ir::info(ir::UnitKind::embedding).params.front(), 0);
}

void check_tensors(const TensorFolder& folder, const std::vector<ModelTensor>& expected) {
  for (const ModelTensor& tensor : expected) {
    const TensorEntry& entry = folder.entry(tensor.name);
    if (entry.shape != tensor.shape) {
      field_error(folder.file_of(tensor.name), "tensor \"" + tensor.name + "\": shape", shape_text(entry.shape),
                  shape_text(tensor.shape));
    }
  }
}

TensorFolder open_weights(const fs::path& folder, const ir::Settings& settings) {
  std::vector<std::string> skipped;
  fs::path from = newest_checkpoint(folder, &skipped).value_or(folder);
  if (!path_exists(from / "config.json")) {
    throw ExecutionError(fmt::format("{}: no config.json and no complete checkpoint{}{}", folder.string(),
                                     skipped.empty() ? "" : "; ", skipped.empty() ? "" : skipped.front()));
  }
  check_hf_config(from / "config.json", settings);
  TensorFolder weights(from, "model");
  const std::vector<ModelTensor> expected = model_tensors(settings);
  check_tensors(weights, expected);
  refuse_unknown_tensors(weights, settings, expected);
  return weights;
}

}  // namespace fem::exec
