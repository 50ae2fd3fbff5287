// A small model's settings and parameters for the tests of weight folders.
#pragma once

#include <string>
#include <vector>

#include <ATen/ops/arange.h>

#include "executor/units/memory.hpp"
#include "executor/weights/checkpoint.hpp"
#include "executor/weights/model_weights.hpp"

namespace fem::exec::testing {

inline ir::Settings small_settings(bool tied = false) {
  ir::Settings settings;
  settings.model = {.layers = 4, .hidden = 8, .intermediate = 12, .heads = 4, .kv_heads = 2, .vocab = 11, .tied = tied};
  settings.batch = {.global = 4, .micro = 1, .seq_len = 16};
  settings.data.train = "text";
  settings.run.steps = 50;
  return settings;
}

// Values that no two tensors share: `start`, start + 1/64, ...
inline at::Tensor values(const std::vector<std::int64_t>& shape, double start, at::ScalarType type = at::kFloat) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return at::arange(elements, at::kFloat).div(64).add(start).view(shape).to(type);
}

// All parameters of the model in global order; a tied head's weight included, as a rank at pp = 1 holds it.
inline std::vector<CheckpointParam> all_params(const ir::Settings& settings, double start) {
  std::vector<CheckpointParam> params;
  const auto type = compute_type(settings);
  for (const ModelTensor& tensor : model_tensors(settings)) {
    const at::Tensor master = values(tensor.shape, start);
    params.push_back(
        {tensor.name, master.to(type), master, values(tensor.shape, start + 0.25), values(tensor.shape, start + 0.5)});
    start += 100;
  }
  if (settings.model.tied) {
    CheckpointParam head = params.front();
    head.name = "lm_head.weight";
    params.push_back(head);
  }
  return params;
}

// The parameters divided over `parts` pipeline ranks in order, as evenly as they go.
inline std::vector<CheckpointParam> part_of(const std::vector<CheckpointParam>& params, int part, int parts) {
  const std::size_t n = params.size();
  const auto at = [&](int i) {
    return params.begin() +
           static_cast<std::ptrdiff_t>(n * static_cast<std::size_t>(i) / static_cast<std::size_t>(parts));
  };
  return {at(part), at(part + 1)};
}

// A whole save, as `parts` pipeline ranks make it.
inline std::vector<std::string> save(const std::filesystem::path& dir, const ir::Settings& settings, std::int64_t step,
                                     int parts, double start) {
  const std::vector<CheckpointParam> params = all_params(settings, start);
  begin_checkpoint(dir, step);
  for (int part = 0; part < parts; ++part) {
    write_checkpoint_shard(dir, settings, step, part, parts, part_of(params, part, parts));
  }
  return finish_checkpoint(dir, settings, parts, make_state(settings, step, step * settings.batch.global, 5000));
}

}  // namespace fem::exec::testing
