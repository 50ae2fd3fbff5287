// Files of ours read by the safetensors package, and its files read by us.
#include <cstdlib>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "executor/weights/tensor_folder.hpp"
#include "tests/data/support.hpp"
#include "tests/weights/support.hpp"

namespace fem::exec {
namespace {

using testing::TemporaryFolder;

// Named by torch's word for the type; 7 elements, so that the next tensor would lie askew without care; values 0 .. 6.
const std::pair<const char*, at::ScalarType> kTypes[] = {
    {"float64", at::kDouble}, {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
    {"int64", at::kLong},     {"int32", at::kInt},     {"int16", at::kShort},  {"int8", at::kChar},
    {"uint8", at::kByte},     {"bool", at::kBool},
};

at::Tensor expected(at::ScalarType type) { return at::arange(7, at::kLong).to(type); }

std::vector<NamedTensor> our_tensors() {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, type] : kTypes) tensors.insert(tensors.begin(), {name, expected(type)});
  tensors.push_back({"matrix", at::arange(6, at::kFloat).view({2, 3})});
  tensors.push_back({"scalar", at::full({}, 2.5, at::kFloat)});
  tensors.push_back({"none", at::full({0, 4}, 1, at::kFloat)});
  return tensors;
}

// One run of the script, which costs seconds, checks all that we write and writes what we check.
class SafetensorsPackage : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = std::make_unique<TemporaryFolder>();
    write_safetensors(*folder / "ours.safetensors", our_tensors());
    for (const bool tied : {false, true}) {
      testing::save(*folder / (tied ? "tied" : "untied"), testing::small_settings(tied), 20, 3, 1);
    }
    const std::string command =
        "'" FEM_PYTHON "' -B '" FEM_TEST_DATA "/safetensors_reference.py' '" + folder->path().string() + "'";
    status = std::system(command.c_str());
  }
  static void TearDownTestSuite() { folder.reset(); }

  static inline std::unique_ptr<TemporaryFolder> folder;
  static inline int status = -1;
};

TEST_F(SafetensorsPackage, ReadsOurFilesAndCheckpoints) { EXPECT_EQ(status, 0) << "see the script's message above"; }

TEST_F(SafetensorsPackage, WritesWhatWeRead) {
  const SafetensorsFile file(*folder / "theirs.safetensors");
  EXPECT_EQ(file.tensors().size(), our_tensors().size());
  for (const NamedTensor& named : our_tensors()) {
    const TensorEntry* entry = file.find(named.name);
    ASSERT_NE(entry, nullptr) << named.name;
    EXPECT_EQ(entry->type, named.tensor.scalar_type()) << named.name;
    EXPECT_TRUE(at::equal(file.load(*entry), named.tensor)) << named.name;
  }
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

}  // namespace
}  // namespace fem::exec
