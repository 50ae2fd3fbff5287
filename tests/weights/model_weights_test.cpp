#include "executor/weights/model_weights.hpp"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include "executor/weights/hf_config.hpp"
#include "tests/data/support.hpp"
#include "tests/weights/support.hpp"

namespace fem::exec {
namespace {

using testing::all_params;
using testing::expect_error;
using testing::get_bytes;
using testing::put_bytes;
using testing::save;
using testing::small_settings;
using testing::TemporaryFolder;
using testing::values;

// What transformers' LlamaForCausalLM calls its parameters.
TEST(ModelTensors, HaveHuggingFaceNamesAndShapes) {
  ir::Settings settings = small_settings();
  settings.model.layers = 1;
  std::vector<std::string> found;
  for (const ModelTensor& tensor : model_tensors(settings))
    found.push_back(tensor.name + " " + shape_text(tensor.shape));
  EXPECT_THAT(found,
              ::testing::ElementsAre(
                  "model.embed_tokens.weight [11, 8]", "model.layers.0.input_layernorm.weight [8]",
                  "model.layers.0.self_attn.q_proj.weight [8, 8]", "model.layers.0.self_attn.k_proj.weight [4, 8]",
                  "model.layers.0.self_attn.v_proj.weight [4, 8]", "model.layers.0.self_attn.o_proj.weight [8, 8]",
                  "model.layers.0.post_attention_layernorm.weight [8]", "model.layers.0.mlp.gate_proj.weight [12, 8]",
                  "model.layers.0.mlp.up_proj.weight [12, 8]", "model.layers.0.mlp.down_proj.weight [8, 12]",
                  "model.norm.weight [8]", "lm_head.weight [11, 8]"));
  settings.model.tied = true;
  EXPECT_EQ(model_tensors(settings).size(), 11u);
}

// A Hugging Face folder as others write it: one file, no marker, no optimizer.
class OpenWeightsTest : public ::testing::Test {
 protected:
  void write(const ir::Settings& settings) {
    tensors.clear();
    for (const CheckpointParam& param : all_params(settings, 1)) tensors.push_back({param.name, param.weight});
    write_tensors();
    write_hf_config(folder / "config.json", settings);
  }
  void write_tensors() { write_safetensors(folder / "model.safetensors", tensors); }

  TemporaryFolder folder;
  std::vector<NamedTensor> tensors;
};

TEST_F(OpenWeightsTest, ReadsAHuggingFaceFolder) {
  const ir::Settings settings = small_settings();
  write(settings);
  const TensorFolder weights = open_weights(folder.path(), settings);
  for (const NamedTensor& named : tensors) EXPECT_TRUE(at::equal(weights.load(named.name), named.tensor)) << named.name;
}

TEST_F(OpenWeightsTest, ReadsTheNewestStepOrTheStepThatIsNamed) {
  const ir::Settings settings = small_settings();
  save(folder.path(), settings, 10, 2, 1);
  save(folder.path(), settings, 20, 1, 2);
  const std::string name = "model.norm.weight";
  EXPECT_EQ(open_weights(folder.path(), settings).path(), folder / "step-00000020");
  EXPECT_EQ(open_weights(folder / "step-00000010", settings).path(), folder / "step-00000010");
  EXPECT_FALSE(at::equal(open_weights(folder.path(), settings).load(name),
                         open_weights(folder / "step-00000010", settings).load(name)));
}

TEST_F(OpenWeightsTest, MissingTensorsFilesAndFoldersAreNamed) {
  const ir::Settings settings = small_settings();
  expect_error([&] { open_weights(folder / "absent", settings); }, {folder / "absent", "no config.json"});
  write(settings);
  tensors.pop_back();
  write_tensors();
  expect_error([&] { open_weights(folder.path(), settings); },
               {folder.path().string(), "no tensor \"lm_head.weight\""});
  remove_tree(folder / "model.safetensors");
  expect_error([&] { open_weights(folder.path(), settings); }, {folder.path().string(), "neither model.safetensors"});
}

TEST_F(OpenWeightsTest, AnotherShapeOrAnUnknownTensorIsNamed) {
  const ir::Settings settings = small_settings();
  write(settings);
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", values({8}, 1)});
  write_tensors();
  expect_error([&] { open_weights(folder.path(), settings); },
               {"model.safetensors: tensor \"model.layers.0.self_attn.q_proj.bias\" is not part"});
  tensors.back() = {"model.layers.0.self_attn.rotary_emb.inv_freq", values({1}, 1)};
  write_tensors();
  EXPECT_NO_THROW(open_weights(folder.path(), settings)) << "computed buffers of old exports are ignored";
  tensors.front().tensor = values({12, 8}, 1);
  write_tensors();
  expect_error([&] { open_weights(folder.path(), settings); },
               {"model.safetensors: tensor \"model.embed_tokens.weight\": shape: found [12, 8], expected [11, 8]"});
}

TEST_F(OpenWeightsTest, TheTieFlagOfTheFileCounts) {
  const ir::Settings tied = small_settings(true);
  write(tied);  // with a copy under lm_head.weight, as some exports have it
  EXPECT_TRUE(open_weights(folder.path(), tied).has(stored_name(tied, "lm_head.weight")));
  tensors.pop_back();
  write_tensors();
  EXPECT_TRUE(open_weights(folder.path(), tied).has(stored_name(tied, "lm_head.weight")));
  expect_error([&] { open_weights(folder.path(), small_settings(false)); },
               {"config.json: tie_word_embeddings: found true, but the plan's model has false"});
}

}  // namespace
}  // namespace fem::exec
