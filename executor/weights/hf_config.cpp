#include "executor/weights/hf_config.hpp"

#include <fmt/format.h>

#include <variant>

#include "executor/error.hpp"
#include "executor/weights/file_io.hpp"
#include "executor/weights/json_reader.hpp"
#include "ir/units.hpp"

namespace fem::exec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Model = ir::Settings::ModelSettings;
using Member = std::variant<std::int64_t Model::*, double Model::*, bool Model::*>;

// A key of config.json, the setting that it is, and the value that stands for an absent key.
struct Row {
  const char* key;
  Member at;
  enum { Required, Optional } need;
};

// Sizes that depend on others (kv heads, head_dim) are resolved by unit_dims when they are 0.
constexpr Row kRows[] = {
    {"hidden_size", &Model::hidden, Row::Required},
    {"intermediate_size", &Model::intermediate, Row::Required},
    {"num_hidden_layers", &Model::layers, Row::Required},
    {"num_attention_heads", &Model::heads, Row::Required},
    {"num_key_value_heads", &Model::kv_heads, Row::Optional},
    {"head_dim", &Model::head_dim, Row::Optional},
    {"vocab_size", &Model::vocab, Row::Required},
    {"rms_norm_eps", &Model::norm_eps, Row::Optional},
    {"rope_theta", &Model::rope_theta, Row::Optional},
    {"tie_word_embeddings", &Model::tied, Row::Optional},
};

Model resolved(Model model) {
  ir::Settings settings;
  settings.model = model;
  const ir::UnitDims dims = ir::unit_dims(settings);
  model.kv_heads = dims.kv_heads;
  model.head_dim = dims.head_dim;
  return model;
}

void read_value(const std::string& file, const std::string& key, const json& value, std::int64_t& target) {
  const std::uint64_t count = to_count(file, key, value);
  if (count < 1) value_error(file, key, value, "1 or more");
  target = static_cast<std::int64_t>(count);
}

void read_value(const std::string& file, const std::string& key, const json& value, double& target) {
  if (!value.is_number() || value.get<double>() <= 0) value_error(file, key, value, "a number above 0");
  target = value.get<double>();
}

void read_value(const std::string& file, const std::string& key, const json& value, bool& target) {
  if (!value.is_boolean()) value_error(file, key, value, "true or false");
  target = value.get<bool>();
}

// What a Llama may have and our units do not: an error unless it is off.
void check_unsupported(const std::string& file, const json& config) {
  const auto expect = [&](const char* key, const json& only) {
    const auto at = config.find(key);
    if (at != config.end() && !at->is_null() && *at != only) value_error(file, key, *at, only.dump());
  };
  if (member(file, "", config, "model_type") != "llama")
    value_error(file, "model_type", config["model_type"], "\"llama\"");
  expect("hidden_act", "silu");
  expect("attention_bias", false);
  expect("mlp_bias", false);
  if (const auto at = config.find("rope_scaling"); at != config.end() && !at->is_null()) {
    value_error(file, "rope_scaling", *at, "null: scaled rotary embeddings are not supported");
  }
}

// Since version 5 transformers writes {"rope_parameters": {"rope_type": "default", "rope_theta": ...}}.
void read_rope_parameters(const std::string& file, const json& config, Model& model) {
  const auto at = config.find("rope_parameters");
  if (at == config.end() || at->is_null()) return;
  if (!at->is_object()) value_error(file, "rope_parameters", *at, "an object");
  for (const auto& [key, value] : at->items()) {
    if (key == "rope_theta") {
      read_value(file, "rope_parameters: rope_theta", value, model.rope_theta);
    } else if ((key != "rope_type" && key != "type") || value != "default") {
      value_error(file, "rope_parameters: " + key, value,
                  "rope_type \"default\": scaled rotary embeddings are not supported");
    }
  }
}

}  // namespace

Model read_hf_config(const fs::path& path) {
  const MappedFile file(path);
  const json config = parse_object(file.path(), file.text());
  check_unsupported(file.path(), config);
  Model model;
  model.norm_eps = 1e-6;
  for (const Row& row : kRows) {
    const auto at = config.find(row.key);
    if (at == config.end() || at->is_null()) {
      if (row.need == Row::Required) throw ExecutionError(fmt::format("{}: no \"{}\"", file.path(), row.key));
      continue;
    }
    std::visit([&](auto field) { read_value(file.path(), row.key, *at, model.*field); }, row.at);
  }
  read_rope_parameters(file.path(), config, model);
  return resolved(model);
}

void check_hf_config(const fs::path& path, const ir::Settings& settings) {
  Model found = read_hf_config(path), expected = resolved(settings.model);
  for (const Row& row : kRows) {
    std::visit(
        [&](auto field) {
          if (found.*field == expected.*field) return;
          throw ExecutionError(fmt::format("{}: {}: found {}, but the plan's model has {}", path.string(), row.key,
                                           found.*field, expected.*field));
        },
        row.at);
  }
}

void write_hf_config(const fs::path& path, const ir::Settings& settings) {
  Model model = resolved(settings.model);
  nlohmann::ordered_json config{{"architectures", json::array({"LlamaForCausalLM"})}, {"model_type", "llama"}};
  for (const Row& row : kRows) std::visit([&](auto field) { config[row.key] = model.*field; }, row.at);
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
  config["rope_scaling"] = nullptr;
  config["max_position_embeddings"] = settings.batch.seq_len;
  config["initializer_range"] = model.init_std;
  // Ours are tokens without special meaning; transformers' defaults would be 1 and 2.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  const std::string& compute = settings.precision.compute;
  config["torch_dtype"] = compute == "fp32" ? "float32" : compute == "bf16" ? "bfloat16" : "float16";
  write_file(path, config.dump(2) + "\n");
}

}  // namespace fem::exec
