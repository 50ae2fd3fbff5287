#include "executor/weights/safetensors.hpp"

#include <cmath>
#include <limits>
#include <random>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/data/support.hpp"
#include "tests/weights/file_limit.hpp"

namespace fem::exec {
namespace {

using namespace std::string_literals;
using testing::expect_error;
using testing::FileSizeLimit;
using testing::get_bytes;
using testing::put_bytes;
using testing::raw;
using testing::TemporaryFolder;

std::string file_of(const std::string& header, const std::string& data) {
  return raw<std::uint64_t>(header.size()) + header + data;
}

// Two tensors written by hand: "a" is F32 [2], 1.0 (0x3f800000) and -2.5 (0xc0200000); "b" is BF16 [1, 2], 1.0 (0x3f80)
// and 2.0 (0x4000).
const std::string kHeader = R"({"__metadata__":{"format":"pt"},"a":{"data_offsets":[0,8],"dtype":"F32","shape":[2]},)"
                            R"("b":{"data_offsets":[8,12],"dtype":"BF16","shape":[1,2]}})";
const std::string kData = "\0\0\x80\x3f\0\0\x20\xc0\x80\x3f\0\x40"s;

class SafetensorsTest : public ::testing::Test {
 protected:
  void put(const std::string& header, const std::string& data = kData) { put_bytes(path, file_of(header, data)); }
  // The header with one piece of text exchanged.
  static std::string with(const std::string& old_text, const std::string& new_text) {
    std::string header = kHeader;
    const std::size_t at = header.find(old_text);
    EXPECT_NE(at, std::string::npos) << old_text;
    return header.replace(at, old_text.size(), new_text);
  }
  SafetensorsFile open() { return SafetensorsFile(path); }

  TemporaryFolder folder;
  std::string path = folder / "x.safetensors";
};

TEST_F(SafetensorsTest, ReadsAFileWrittenByHand) {
  put(kHeader);
  const SafetensorsFile file = open();
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), 2u);
  const at::Tensor a = file.load(*file.find("a")), b = file.load(*file.find("b"));
  EXPECT_EQ(a.scalar_type(), at::kFloat);
  EXPECT_EQ(a.sizes(), (at::IntArrayRef{2}));
  EXPECT_EQ(a.const_data_ptr<float>()[0], 1.0f);
  EXPECT_EQ(a.const_data_ptr<float>()[1], -2.5f);
  EXPECT_EQ(b.scalar_type(), at::kBFloat16);
  EXPECT_EQ(b.sizes(), (at::IntArrayRef{1, 2}));
  EXPECT_EQ(static_cast<float>(b.const_data_ptr<at::BFloat16>()[1]), 2.0f);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST_F(SafetensorsTest, WritesTheseBytes) {
  const at::Tensor a = at::empty({2}, at::kFloat), b = at::empty({1, 2}, at::kBFloat16);
  a.mutable_data_ptr<float>()[0] = 1.0f;
  a.mutable_data_ptr<float>()[1] = -2.5f;
  b.mutable_data_ptr<at::BFloat16>()[0] = 1.0f;
  b.mutable_data_ptr<at::BFloat16>()[1] = 2.0f;
  // "b" first: wide elements come before narrow ones, so that every tensor is aligned.
  write_safetensors(path, std::vector<NamedTensor>{{"b", b}, {"a", a}});
  std::string header = kHeader;
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(get_bytes(path), file_of(header, kData));
  EXPECT_EQ(list_folder(folder.path()).size(), 1u);
}

TEST_F(SafetensorsTest, EachCorruptedFieldIsNamedWithBothValues) {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {with("F32", "F33"), {"x.safetensors: tensor \"a\": dtype: found \"F33\", expected one of F64 F32"}},
      {with("\"F32\"", "7"), {"tensor \"a\": dtype: found 7, expected a string"}},
      {with("\"dtype\":\"F32\",", ""), {"tensor \"a\": no \"dtype\""}},
      {with("\"data_offsets\":[0,8],", ""), {"tensor \"a\": no \"data_offsets\""}},
      {with(",\"shape\":[2]", ""), {"tensor \"a\": no \"shape\""}},
      {with("[2]", "[3]"), {"tensor \"a\": data_offsets: found 8 bytes, expected 12 for F32 [3]"}},
      {with("[2]", "[-2]"), {"tensor \"a\": shape: found -2, expected an integer from 0"}},
      {with("[2]", "2"), {"tensor \"a\": shape: found 2, expected a list"}},
      {with("[2]", "[2.0]"), {"tensor \"a\": shape: found 2.0, expected an integer"}},
      {with("[2]", "[4611686018427387904,4]"), {"tensor \"a\": shape: found [4611686018427387904, 4]", "2^64"}},
      {with("[0,8]", "[0,8,8]"), {"tensor \"a\": data_offsets: found [0,8,8], expected [begin, end]"}},
      {with("[0,8]", "[8,0]"), {"tensor \"a\": data_offsets: found [8,0], expected begin <= end <= 12"}},
      {with("[8,12]", "[8,13]"), {"tensor \"b\": data_offsets: found [8,13], expected begin <= end <= 12"}},
      {with("[8,12]", "[8,18446744073709551615]"), {"tensor \"b\": data_offsets: found 18446744073709551615"}},
      {with("[0,8]", "[-8,0]"), {"tensor \"a\": data_offsets: found -8"}},
      {with("[8,12]", "[7,11]"), {"tensor \"b\": begin: found 7, expected 8"}},
      {with("[0,8]", "[4,12]"), {"tensor \"a\": begin: found 4, expected 0"}},
      {with("\"b\":", "\"a\":"), {"x.safetensors: \"a\" stands twice"}},
      {with("\"F32\"", "\"F32\",\"dtype\":\"F32\""), {"x.safetensors: \"dtype\" stands twice"}},
      {with("\"F32\"", "\"F32\",\"extra\":1"), {"tensor \"a\"", "and nothing else"}},
      {with("\"pt\"", "1"), {"__metadata__: \"format\": found 1, expected a string"}},
      {with("{\"format\":\"pt\"}", "[]"), {"__metadata__: found [], expected an object"}},
      {with("{\"data_offsets\":[0,8],\"dtype\":\"F32\",\"shape\":[2]}", "3"),
       {"tensor \"a\": found 3, expected an object"}},
      {"[]", {"x.safetensors: whole text: found [], expected a JSON object"}},
      {kHeader.substr(1), {"x.safetensors: not valid JSON"}},
      {"", {"x.safetensors: not valid JSON"}},
  };
  for (const auto& [header, words] : cases) {
    put(header);
    SCOPED_TRACE(header);
    for (const std::string& word : words) expect_error([&] { open(); }, {word});
  }
}

TEST_F(SafetensorsTest, EveryTruncationAndExtensionIsRefused) {
  const std::string whole = file_of(kHeader, kData);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put_bytes(path, whole.substr(0, size));
    expect_error([&] { open(); }, {"x.safetensors: "});
  }
  put_bytes(path, whole + "z");
  expect_error([&] { open(); }, {"size: found 13 bytes of data, expected 12, the end of the last tensor"});
  put_bytes(path, whole.substr(0, 5));
  expect_error([&] { open(); }, {"size: found 5 bytes, expected at least 8"});
  put_bytes(path, raw<std::uint64_t>(1000) + kHeader + kData);
  expect_error([&] { open(); }, {"header length: found 1000, expected at most "});
  put_bytes(path, raw<std::uint64_t>(100'000'001) + kHeader);
  expect_error([&] { open(); }, {"header length: found 100000001, expected at most 100000000"});
}

TEST_F(SafetensorsTest, RandomCorruptionIsRefusedOrHarmless) {
  std::mt19937 random(2);
  const std::string whole = file_of(kHeader, kData);
  int refused = 0, read = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = whole;
    for (unsigned flips = random() % 3 + 1; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    put_bytes(path, bytes);
    try {
      const SafetensorsFile file = open();
      for (const TensorEntry& entry : file.tensors()) file.load(entry);
      ++read;
    } catch (const ExecutionError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(read, 15) << "changes in the data alone are legal";
}

constexpr at::ScalarType kAllTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                        at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

TEST_F(SafetensorsTest, EveryTypeComesBackAligned) {
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type : kAllTypes) {
    // Odd sizes, narrow types first: without reordering the wide ones would lie askew.
    tensors.insert(tensors.begin(), {c10::toString(type), at::arange(3, at::kLong).to(type)});
  }
  tensors.push_back({"scalar", at::full({}, 2.5, at::kFloat)});
  tensors.push_back({"none", at::empty({0, 4}, at::kFloat)});
  write_safetensors(path, tensors);
  const SafetensorsFile file = open();
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const NamedTensor& named : tensors) {
    const TensorEntry* entry = file.find(named.name);
    ASSERT_NE(entry, nullptr) << named.name;
    EXPECT_EQ(entry->type, named.tensor.scalar_type());
    EXPECT_TRUE(at::equal(file.load(*entry), named.tensor)) << named.name;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.bytes(*entry).data()) % named.tensor.element_size(), 0u)
        << named.name;
  }
}

TEST_F(SafetensorsTest, ViewsAreWrittenAsTheyLook) {
  const at::Tensor base = at::arange(12, at::kFloat).view({3, 4});
  write_safetensors(path, std::vector<NamedTensor>{{"t", base.t()}, {"part", base.slice(1, 1, 3)}});
  const SafetensorsFile file = open();
  EXPECT_TRUE(at::equal(file.load(*file.find("t")), base.t()));
  EXPECT_TRUE(at::equal(file.load(*file.find("part")), base.slice(1, 1, 3)));
}

// A parameter's memory holds NaN before it is loaded: not one byte may stay.
TEST_F(SafetensorsTest, LoadingOverwritesEveryElement) {
  const at::Tensor values = at::arange(1000, at::kFloat);
  write_safetensors(path, std::vector<NamedTensor>{{"w", values}});
  const SafetensorsFile file = open();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor target = at::full({1000}, std::numeric_limits<double>::quiet_NaN(), type);
    file.load_into(*file.find("w"), target);
    EXPECT_TRUE(at::equal(target, values.to(type))) << c10::toString(type);
  }
  const at::Tensor flat = at::full({1100}, -1, at::kFloat);
  file.load_into(*file.find("w"), flat.slice(0, 50, 1050));
  EXPECT_TRUE(at::equal(flat.slice(0, 50, 1050), values));
  EXPECT_EQ(flat.const_data_ptr<float>()[49], -1);
  EXPECT_EQ(flat.const_data_ptr<float>()[1050], -1);
}

TEST_F(SafetensorsTest, WrongTargetsAndSourcesAreRefused) {
  put(kHeader);
  const SafetensorsFile file = open();
  const TensorEntry& a = *file.find("a");
  expect_error(
      [&] {
        file.load_into(a, at::empty({1, 2}, at::kFloat));
      },
      {"x.safetensors: tensor \"a\": shape: found [2], expected [1, 2]"});
  expect_error([&] { file.load_into(a, at::empty({4}, at::kFloat).slice(0, 0, 4, 2)); }, {"contiguous"});
  const at::Tensor w = at::full({1}, 1, at::kFloat);
  expect_error(
      [&] {
        write_safetensors(path, std::vector<NamedTensor>{{"w", w}, {"w", w}});
      },
      {"two tensors named \"w\""});
  expect_error([&] { write_safetensors(path, std::vector<NamedTensor>{{"w", {}}}); }, {"tensor \"w\""});
  expect_error(
      [&] {
        write_safetensors(path, std::vector<NamedTensor>{{"w", w.to(at::kComplexFloat)}});
      },
      {"safetensors has no type ComplexFloat"});
  EXPECT_EQ(get_bytes(path), file_of(kHeader, kData)) << "a refused write leaves the old file";
}

TEST_F(SafetensorsTest, AFullDiskIsNoticedAndTheOldFileStays) {
  put(kHeader);
  const at::Tensor big = at::full({100'000}, 1, at::kFloat);
  const FileSizeLimit limit(8192);
  expect_error([&] { write_safetensors(path, std::vector<NamedTensor>{{"w", big}}); }, {"cannot write " + path});
  EXPECT_EQ(get_bytes(path), file_of(kHeader, kData));
}

}  // namespace
}  // namespace fem::exec
