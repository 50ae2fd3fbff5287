// Which tensors a model has under Hugging Face's names, and a folder of weights that is known to hold them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/weights/tensor_folder.hpp"
#include "ir/settings.hpp"

namespace fem::exec {

struct ModelTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// Every tensor that a weight file of the model holds, in global order (embedding, blocks, head). The tied head's weight
// is not among them: it is stored once, as the embedding.
std::vector<ModelTensor> model_tensors(const ir::Settings& settings);

// The name under which a parameter is stored: its Hugging Face name, but the embedding's for a tied head's weight.
std::string stored_name(const ir::Settings& settings, const std::string& hf_name);

// Throws on the first tensor of `expected` that the folder lacks or has with another shape; names file and tensor.
void check_tensors(const TensorFolder& folder, const std::vector<ModelTensor>& expected);

// A folder to start from (`--init`): a checkpoint folder (newest complete step), one step of it, or any Hugging Face
// Llama.
// config.json must agree with the settings; every tensor of the model must be there with its shape; a tensor that the
// model does not have is an error (ignored: rotary inv_freq buffers, and a tied model's lm_head.weight).
// Read parameters with load_into(stored_name(settings, hf_name), target).
TensorFolder open_weights(const std::filesystem::path& folder, const ir::Settings& settings);

}  // namespace fem::exec
