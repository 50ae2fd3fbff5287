#include "executor/weights/tensor_folder.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "tests/data/support.hpp"

namespace fem::exec {
namespace {

using testing::expect_error;
using testing::get_bytes;
using testing::put_bytes;
using testing::TemporaryFolder;

const std::string kIndex = "model.safetensors.index.json";

at::Tensor number(double value) { return at::full({2}, value, at::kFloat); }

class TensorFolderTest : public ::testing::Test {
 protected:
  // Tensors a, b, c in two shards with their index.
  TensorFolderTest() {
    write_safetensors(folder / shard_name("model", 0, 2), std::vector<NamedTensor>{{"a", number(1)}, {"b", number(2)}});
    write_safetensors(folder / shard_name("model", 1, 2), std::vector<NamedTensor>{{"c", number(3)}});
    write_tensor_index(folder.path(), "model", 2);
  }
  TensorFolder open() { return TensorFolder(folder.path(), "model"); }

  TemporaryFolder folder;
};

TEST_F(TensorFolderTest, FindsTensorsInTheirShards) {
  const TensorFolder tensors = open();
  EXPECT_THAT(tensors.names(), ::testing::ElementsAre("a", "b", "c"));
  EXPECT_TRUE(at::equal(tensors.load("a"), number(1)));
  EXPECT_TRUE(at::equal(tensors.load("c"), number(3)));
  const at::Tensor target = number(-1);
  tensors.load_into("b", target);
  EXPECT_TRUE(at::equal(target, number(2)));
  EXPECT_EQ(tensors.file_of("c"), folder / "model-00002-of-00002.safetensors");
  EXPECT_FALSE(tensors.has("d"));
  expect_error([&] { tensors.load("d"); }, {folder.path().string(), "no tensor \"d\""});
}

// total_size counts tensor bytes: three tensors of two floats.
TEST_F(TensorFolderTest, IndexIsInTheHuggingFaceForm) {
  EXPECT_EQ(get_bytes(folder / kIndex), R"({
  "metadata": {
    "total_size": 24
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors"
  }
}
)");
}

TEST_F(TensorFolderTest, AnAbsentShardFailsFirstAndIsNamedWithATensor) {
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  expect_error([&] { open(); },
               {folder / kIndex, "tensor \"c\"", folder / "model-00002-of-00002.safetensors", "does not exist"});
}

TEST_F(TensorFolderTest, ATensorThatItsShardLacksFailsFirstAndIsNamed) {
  write_safetensors(folder / "model-00001-of-00002.safetensors", std::vector<NamedTensor>{{"a", number(1)}});
  expect_error([&] { open(); }, {folder / "model-00001-of-00002.safetensors", "no tensor \"b\"", kIndex});
}

TEST_F(TensorFolderTest, BadIndexesAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "no \"weight_map\""},
      {R"({"weight_map": []})", "weight_map: found [], expected an object"},
      {R"({"weight_map": {"a": 3}})", "weight_map: \"a\": found 3, expected a string"},
      {R"({"weight_map": {"a": "../x"}})",
       "weight_map: \"a\": found \"../x\", expected the name of a file in the same folder"},
      {R"({"weight_map": {"a": ""}})", "weight_map: \"a\": found \"\""},
      {R"({"weight_map": {"a": "x", "a": "x"}})", "\"a\" stands twice"},
      {"{", "not valid JSON"},
  };
  for (const auto& [index, words] : cases) {
    put_bytes(folder / kIndex, index);
    expect_error([&] { open(); }, {kIndex, words});
  }
}

TEST_F(TensorFolderTest, ATensorInTwoShardsIsAnError) {
  write_safetensors(folder / shard_name("model", 1, 2), std::vector<NamedTensor>{{"a", number(3)}});
  expect_error([&] { write_tensor_index(folder.path(), "model", 2); },
               {"tensor \"a\"", "model-00001-of-00002", "model-00002-of-00002"});
}

TEST_F(TensorFolderTest, OneFileNeedsNoIndex) {
  const TemporaryFolder other;
  write_safetensors(other / shard_name("model", 0, 1), std::vector<NamedTensor>{{"a", number(5)}});
  write_tensor_index(other.path(), "model", 1);
  EXPECT_FALSE(path_exists(other / kIndex));
  EXPECT_TRUE(at::equal(TensorFolder(other.path(), "model").load("a"), number(5)));
  expect_error([&] { TensorFolder(other.path(), "optimizer"); },
               {other.path().string(), "neither optimizer.safetensors nor optimizer.safetensors.index.json"});
}

}  // namespace
}  // namespace fem::exec
