#include "executor/weights/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <ATen/ops/empty.h>

#include "executor/error.hpp"
#include "executor/weights/json_reader.hpp"

namespace fem::exec {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and read as it lies");

using nlohmann::json;

constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"BOOL", at::kBool},
};

std::string quoted(const std::string& name) { return "tensor \"" + name + "\""; }

at::ScalarType parse_type(const std::string& file, const std::string& where, const json& value) {
  const std::string text = to_text(file, where, value);
  for (const auto& [name, type] : kTypes) {
    if (name == text) return type;
  }
  std::string known;
  for (const auto& [name, type] : kTypes) known += (known.empty() ? "" : " ") + std::string(name);
  field_error(file, where, "\"" + text + "\"", "one of " + known);
}

std::vector<std::int64_t> parse_shape(const std::string& file, const std::string& where, const json& value) {
  if (!value.is_array()) value_error(file, where, value, "a list of sizes");
  std::vector<std::int64_t> shape;
  for (const json& size : value) shape.push_back(static_cast<std::int64_t>(to_count(file, where, size)));
  return shape;
}

std::uint64_t shape_bytes(const std::string& file, const std::string& where, const TensorEntry& tensor) {
  std::uint64_t bytes = c10::elementSize(tensor.type);
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      field_error(file, where, shape_text(tensor.shape), "a number of bytes below 2^64");
    }
  }
  return bytes;
}

TensorEntry parse_entry(const std::string& file, const std::string& name, const json& fields,
                        std::uint64_t data_bytes) {
  const std::string where = quoted(name);
  TensorEntry tensor;
  tensor.name = name;
  tensor.type = parse_type(file, where + ": dtype", member(file, where, fields, "dtype"));
  tensor.shape = parse_shape(file, where + ": shape", member(file, where, fields, "shape"));
  const json& offsets = member(file, where, fields, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) value_error(file, where + ": data_offsets", offsets, "[begin, end]");
  if (fields.size() != 3) value_error(file, where, fields, "dtype, shape, data_offsets and nothing else");
  tensor.begin = to_count(file, where + ": data_offsets", offsets[0]);
  tensor.end = to_count(file, where + ": data_offsets", offsets[1]);
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    value_error(file, where + ": data_offsets", offsets,
                "begin <= end <= " + std::to_string(data_bytes) + ", the bytes of data in the file");
  }
  const std::uint64_t bytes = shape_bytes(file, where + ": shape", tensor);
  if (tensor.end - tensor.begin != bytes) {
    field_error(
        file, where + ": data_offsets", std::to_string(tensor.end - tensor.begin) + " bytes",
        std::to_string(bytes) + " for " + std::string(safetensors_type(tensor.type)) + " " + shape_text(tensor.shape));
  }
  return tensor;
}

// Tensors follow one another from 0 to the end of the file, without a hole or an overlap.
void check_contiguous(const std::string& file, const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != at) {
      field_error(file, quoted(tensor.name) + ": begin", std::to_string(tensor.begin),
                  std::to_string(at) + ", the end of the tensor before it");
    }
    at = tensor.end;
  }
  if (at != data_bytes) {
    field_error(file, "size", std::to_string(data_bytes) + " bytes of data",
                std::to_string(at) + ", the end of the last tensor");
  }
}

// The offsets are in the order of `tensors`.
std::string header_text(std::span<const NamedTensor> tensors) {
  json header{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t at = 0;
  for (const NamedTensor& named : tensors) {
    const std::uint64_t end = at + named.tensor.nbytes();
    const json entry{{"dtype", safetensors_type(named.tensor.scalar_type())},
                     {"shape", named.tensor.sizes().vec()},
                     {"data_offsets", {at, end}}};
    if (!header.emplace(named.name, entry).second) throw ExecutionError("two tensors named \"" + named.name + "\"");
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

std::string_view safetensors_type(at::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (known == type) return name;
  }
  throw ExecutionError(std::string("safetensors has no type ") + c10::toString(type));
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) { parse_header(); }

void SafetensorsFile::parse_header() {
  const std::string& file = file_.path();
  const std::uint64_t size = file_.bytes().size();
  if (size < 8) field_error(file, "size", std::to_string(size) + " bytes", "at least 8");
  std::uint64_t length = 0;
  std::memcpy(&length, file_.bytes().data(), 8);
  if (length > kMaxSafetensorsHeader) {
    field_error(file, "header length", std::to_string(length), "at most " + std::to_string(kMaxSafetensorsHeader));
  }
  if (length > size - 8) {
    field_error(file, "header length", std::to_string(length),
                "at most " + std::to_string(size - 8) + " in a file of " + std::to_string(size) + " bytes");
  }
  data_at_ = 8 + static_cast<std::size_t>(length);
  const json header = parse_object(file, file_.text().substr(8, static_cast<std::size_t>(length)));
  for (const auto& [name, fields] : header.items()) {
    if (name == "__metadata__") {
      if (!fields.is_object()) value_error(file, name, fields, "an object of strings");
      for (const auto& [key, value] : fields.items()) metadata_[key] = to_text(file, name + ": \"" + key + "\"", value);
    } else {
      tensors_.push_back(parse_entry(file, name, fields, size - data_at_));
    }
  }
  std::ranges::sort(tensors_, {}, [](const TensorEntry& t) { return std::tie(t.begin, t.end, t.name); });
  check_contiguous(file, tensors_, size - data_at_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& tensor) const {
  return file_.bytes().subspan(data_at_ + tensor.begin, tensor.end - tensor.begin);
}

at::Tensor SafetensorsFile::load(const TensorEntry& tensor) const {
  at::Tensor target = at::empty(tensor.shape, tensor.type);
  load_into(tensor, target);
  return target;
}

void SafetensorsFile::load_into(const TensorEntry& tensor, const at::Tensor& target) const {
  FEM_CHECK(target.is_contiguous() && target.is_cpu(), quoted(tensor.name) + " is read into a contiguous CPU tensor");
  if (!target.sizes().equals(tensor.shape)) {
    field_error(path(), quoted(tensor.name) + ": shape", shape_text(tensor.shape), shape_text(target.sizes()));
  }
  if (target.scalar_type() != tensor.type) {
    target.copy_(load(tensor));
    return;
  }
  const std::span<const std::byte> source = bytes(tensor);
  FEM_CHECK(source.size() == target.nbytes(), quoted(tensor.name) + ": bytes of file and tensor");
  if (!source.empty()) std::memcpy(target.mutable_data_ptr(), source.data(), source.size());
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors) {
  std::vector<NamedTensor> ordered;
  for (const NamedTensor& named : tensors) {
    FEM_CHECK(named.tensor.defined() && named.tensor.is_cpu(), quoted(named.name) + " is written from a CPU tensor");
    ordered.push_back({named.name, named.tensor.contiguous()});
  }
  // Wide elements first: then each tensor is aligned to its element, which readers that map the file rely on.
  std::ranges::stable_sort(ordered, std::ranges::greater(),
                           [](const NamedTensor& named) { return named.tensor.element_size(); });
  const std::string header = header_text(ordered);
  const std::uint64_t length = header.size();
  if (length > kMaxSafetensorsHeader) {
    field_error(path.string(), "header length", std::to_string(length),
                "at most " + std::to_string(kMaxSafetensorsHeader));
  }
  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(header);
  for (const NamedTensor& named : ordered) file.write(named.tensor.const_data_ptr(), named.tensor.nbytes());
  file.commit();
}

}  // namespace fem::exec
