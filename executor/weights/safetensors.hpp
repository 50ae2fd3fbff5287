// The safetensors file format: u64 little-endian header length, JSON {name: {dtype, shape, data_offsets}}, bytes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "executor/weights/file_io.hpp"

namespace fem::exec {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

// "F32", "BF16", ...; the format's names. Throws for a type that it does not have.
std::string_view safetensors_type(at::ScalarType type);

// One tensor as the header describes it; offsets count from the start of the data.
struct TensorEntry {
  std::string name;
  at::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
};
std::string shape_text(std::span<const std::int64_t> shape);  // "[2, 3]"

// A file's header, checked whole on opening, and its tensors by name. Checks: header length (file size, 100 MB), every
// field's type, known dtype, shape product = bytes, offsets contiguous from 0 to the end of the file, duplicate names.
// Each failure is an ExecutionError with file, tensor, field and both values. Safe to read from many threads.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& path() const { return file_.path(); }
  std::span<const TensorEntry> tensors() const { return tensors_; }  // in the order of the data
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorEntry* find(std::string_view name) const;  // nullptr: not here
  std::span<const std::byte> bytes(const TensorEntry& tensor) const;

  // A fresh contiguous CPU tensor with the file's type and shape.
  at::Tensor load(const TensorEntry& tensor) const;
  // Fills a contiguous CPU tensor of the same shape, converting to its type where the types differ.
  void load_into(const TensorEntry& tensor, const at::Tensor& target) const;

 private:
  void parse_header();

  MappedFile file_;
  std::size_t data_at_ = 8;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // CPU; need not be contiguous
};

// Data in the order given, header padded with blanks to 8 bytes, __metadata__ {"format": "pt"}; renamed into place.
// Duplicate names and types unknown to the format are errors.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors);

}  // namespace fem::exec
