#include "executor/weights/hf_config.hpp"

#include <gtest/gtest.h>

#include "tests/data/support.hpp"
#include "tests/weights/support.hpp"

namespace fem::exec {
namespace {

using testing::expect_error;
using testing::get_bytes;
using testing::put_bytes;
using testing::small_settings;
using testing::TemporaryFolder;

// The keys of TinyLlama 1.1B's published config.json.
const std::string kTinyLlama = R"({
  "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 2048,
  "initializer_range": 0.02, "intermediate_size": 5632, "max_position_embeddings": 2048, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float32",
  "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000
})";

class HfConfigTest : public ::testing::Test {
 protected:
  auto read(const std::string& text) {
    put_bytes(path, text);
    return read_hf_config(path);
  }
  static std::string with(const std::string& old_text, const std::string& new_text) {
    std::string text = kTinyLlama;
    const std::size_t at = text.find(old_text);
    EXPECT_NE(at, std::string::npos) << old_text;
    return text.replace(at, old_text.size(), new_text);
  }

  TemporaryFolder folder;
  std::string path = folder / "config.json";
};

TEST_F(HfConfigTest, ReadsAPublishedConfig) {
  const auto model = read(kTinyLlama);
  EXPECT_EQ(model.hidden, 2048);
  EXPECT_EQ(model.intermediate, 5632);
  EXPECT_EQ(model.layers, 22);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.head_dim, 64) << "absent: hidden / heads";
  EXPECT_EQ(model.vocab, 32000);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.rope_theta, 10000) << "absent: transformers' default";
  EXPECT_FALSE(model.tied);
}

TEST_F(HfConfigTest, AbsentKeysHaveTransformersDefaults) {
  EXPECT_EQ(read(with("\"num_key_value_heads\": 4, ", "")).kv_heads, 32);
  EXPECT_EQ(read(with("\"num_key_value_heads\": 4", "\"num_key_value_heads\": null")).kv_heads, 32);
  EXPECT_EQ(read(with("\"rms_norm_eps\": 1e-05, ", "")).norm_eps, 1e-6);
  EXPECT_FALSE(read(with("\"tie_word_embeddings\": false, ", "")).tied);
  EXPECT_TRUE(read(with("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true")).tied);
  EXPECT_EQ(read(with("\"hidden_act\"", "\"head_dim\": 128, \"hidden_act\"")).head_dim, 128);
  EXPECT_EQ(read(with("\"hidden_act\"", "\"rope_theta\": 500000.0, \"hidden_act\"")).rope_theta, 500000);
  EXPECT_EQ(
      read(with("\"rope_scaling\": null", R"("rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0})"))
          .rope_theta,
      1000000)
      << "where transformers 5 keeps it";
}

TEST_F(HfConfigTest, WhatTheUnitsCannotDoIsNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {with("\"rope_scaling\": null", R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})"),
       "config.json: rope_scaling: found {\"factor\":8.0,\"rope_type\":\"llama3\"}"},
      {with("\"rope_scaling\": null", R"("rope_parameters": {"rope_type": "llama3", "factor": 8.0})"),
       "config.json: rope_parameters: "},
      {with("\"llama\"", "\"gpt2\""), "config.json: model_type: found \"gpt2\", expected \"llama\""},
      {with("\"model_type\": \"llama\",", ""), "config.json: no \"model_type\""},
      {with("\"silu\"", "\"gelu\""), "config.json: hidden_act: found \"gelu\", expected \"silu\""},
      {with("\"use_cache\": true", "\"attention_bias\": true"),
       "config.json: attention_bias: found true, expected false"},
      {with("\"use_cache\": true", "\"mlp_bias\": true"), "config.json: mlp_bias: found true"},
      {with("\"hidden_size\": 2048,", ""), "config.json: no \"hidden_size\""},
      {with("\"hidden_size\": 2048", "\"hidden_size\": 0"), "config.json: hidden_size: found 0, expected 1 or more"},
      {with("\"hidden_size\": 2048", "\"hidden_size\": \"2048\""), "config.json: hidden_size: found \"2048\""},
      {with("\"num_hidden_layers\": 22", "\"num_hidden_layers\": 2.5"), "config.json: num_hidden_layers: found 2.5"},
      {with("1e-05", "-1"), "config.json: rms_norm_eps: found -1, expected a number above 0"},
      {with("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 0"),
       "config.json: tie_word_embeddings: found 0"},
      {"{", "config.json: not valid JSON"},
  };
  for (const auto& [text, words] : cases) expect_error([&, text = text] { read(text); }, {words});
}

TEST_F(HfConfigTest, ComesBackAsWritten) {
  for (const bool tied : {false, true}) {
    ir::Settings settings = small_settings(tied);
    settings.model.norm_eps = 1.0 / 3;
    write_hf_config(path, settings);
    EXPECT_NO_THROW(check_hf_config(path, settings));
    auto expected = settings.model;
    expected.head_dim = 2;  // hidden 8 / 4 heads
    EXPECT_EQ(read_hf_config(path), expected);
  }
}

TEST_F(HfConfigTest, EveryMismatchNamesKeyAndBothValues) {
  const ir::Settings settings = small_settings();
  write_hf_config(path, settings);
  const auto differ = [&](auto change, const std::string& words) {
    ir::Settings other = settings;
    change(other.model);
    expect_error([&] { check_hf_config(path, other); }, {path + ": " + words});
  };
  differ([](auto& m) { m.hidden = 16; }, "hidden_size: found 8, but the plan's model has 16");
  differ([](auto& m) { m.intermediate = 16; }, "intermediate_size: found 12, but the plan's model has 16");
  differ([](auto& m) { m.layers = 5; }, "num_hidden_layers: found 4, but the plan's model has 5");
  differ([](auto& m) { m.heads = 8, m.head_dim = 2; }, "num_attention_heads: found 4, but the plan's model has 8");
  differ([](auto& m) { m.kv_heads = 0; }, "num_key_value_heads: found 2, but the plan's model has 4");
  differ([](auto& m) { m.head_dim = 4; }, "head_dim: found 2, but the plan's model has 4");
  differ([](auto& m) { m.vocab = 12; }, "vocab_size: found 11, but the plan's model has 12");
  differ([](auto& m) { m.norm_eps = 1e-6; }, "rms_norm_eps: found 1e-05, but the plan's model has 1e-06");
  differ([](auto& m) { m.rope_theta = 5; }, "rope_theta: found 10000, but the plan's model has 5");
  differ([](auto& m) { m.tied = true; }, "tie_word_embeddings: found false, but the plan's model has true");
}

}  // namespace
}  // namespace fem::exec
