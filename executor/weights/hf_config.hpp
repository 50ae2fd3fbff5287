// config.json of a Hugging Face Llama: reading it into model settings, comparing, writing it.
#pragma once

#include <filesystem>

#include "ir/settings.hpp"

namespace fem::exec {

// The model that the file describes, with Hugging Face's defaults where a key is absent (rms_norm_eps 1e-6, rope_theta
// 10000, as many kv heads as heads, head_dim = hidden / heads, untied); kv_heads and head_dim are never 0.
// Errors name file, key and value: another model_type or hidden_act, attention_bias, mlp_bias, rope_scaling other than
// none, a wrong type, a size below 1.
ir::Settings::ModelSettings read_hf_config(const std::filesystem::path& path);

// Throws on the first key whose value in the file differs from the settings; names file, key and both values.
void check_hf_config(const std::filesystem::path& path, const ir::Settings& settings);

// The config.json of these settings; max_position_embeddings is the sequence length.
void write_hf_config(const std::filesystem::path& path, const ir::Settings& settings);

}  // namespace fem::exec
