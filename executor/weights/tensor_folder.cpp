#include "executor/weights/tensor_folder.hpp"

#include <fmt/format.h>

#include "executor/error.hpp"
#include "executor/weights/json_reader.hpp"

namespace fem::exec {

namespace fs = std::filesystem;

std::string shard_name(std::string_view stem, int part, int parts) {
  FEM_CHECK(part >= 0 && part < parts, fmt::format("part {} of {}", part, parts));
  return parts == 1 ? fmt::format("{}.safetensors", stem)
                    : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, part + 1, parts);
}

std::string index_name(std::string_view stem) { return fmt::format("{}.safetensors.index.json", stem); }

TensorFolder::TensorFolder(const fs::path& folder, std::string_view stem) : path_(folder.string()) {
  const fs::path single = folder / shard_name(stem, 0, 1), index = folder / index_name(stem);
  if (path_exists(single)) {
    add_file(single);
  } else if (path_exists(index)) {
    read_index(index);
  } else {
    throw ExecutionError(
        fmt::format("{}: neither {} nor {}", path_, single.filename().string(), index.filename().string()));
  }
}

void TensorFolder::add_file(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const TensorEntry& entry : files_.back()->tensors()) where_[entry.name] = {files_.back().get(), &entry};
}

// metadata.total_size is not compared: published checkpoints differ in what they count.
void TensorFolder::read_index(const fs::path& path) {
  const MappedFile file(path);
  const nlohmann::json index = parse_object(file.path(), file.text());
  const nlohmann::json& map = member(file.path(), "", index, "weight_map");
  if (!map.is_object()) value_error(file.path(), "weight_map", map, "an object");
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [name, value] : map.items()) {
    const std::string where = "weight_map: \"" + name + "\"";
    const std::string shard = to_text(file.path(), where, value);
    if (shard.empty() || shard.find('/') != std::string::npos) {
      field_error(file.path(), where, "\"" + shard + "\"", "the name of a file in the same folder");
    }
    const auto [at, fresh] = shards.try_emplace(shard, nullptr);
    if (fresh) {
      const fs::path shard_path = path.parent_path() / shard;
      if (!path_exists(shard_path)) {
        throw ExecutionError(fmt::format("{}: tensor \"{}\" is said to lie in {}, which does not exist", file.path(),
                                         name, shard_path.string()));
      }
      files_.push_back(std::make_unique<SafetensorsFile>(shard_path));
      at->second = files_.back().get();
    }
    const TensorEntry* entry = at->second->find(name);
    if (entry == nullptr) {
      throw ExecutionError(fmt::format("{}: no tensor \"{}\", which {} says it holds", at->second->path(), name,
                                       path.filename().string()));
    }
    where_[name] = {at->second, entry};
  }
}

std::vector<std::string> TensorFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : where_) names.push_back(name);
  return names;
}

const TensorFolder::Place& TensorFolder::place(std::string_view name) const {
  const auto at = where_.find(name);
  if (at == where_.end())
    throw ExecutionError(fmt::format("{}: no tensor \"{}\" in its safetensors files", path_, name));
  return at->second;
}

const TensorEntry& TensorFolder::entry(std::string_view name) const { return *place(name).entry; }

const std::string& TensorFolder::file_of(std::string_view name) const { return place(name).file->path(); }

at::Tensor TensorFolder::load(std::string_view name) const {
  const Place& at = place(name);
  return at.file->load(*at.entry);
}

void TensorFolder::load_into(std::string_view name, const at::Tensor& target) const {
  const Place& at = place(name);
  at.file->load_into(*at.entry, target);
}

void write_tensor_index(const fs::path& folder, std::string_view stem, int parts) {
  if (parts == 1) return;
  std::map<std::string, std::string> weight_map;
  std::uint64_t total = 0;
  for (int part = 0; part < parts; ++part) {
    const std::string shard = shard_name(stem, part, parts);
    const SafetensorsFile file(folder / shard);
    for (const TensorEntry& entry : file.tensors()) {
      const auto [at, fresh] = weight_map.emplace(entry.name, shard);
      if (!fresh) {
        throw ExecutionError(
            fmt::format("{}: tensor \"{}\" lies in {} and in {}", folder.string(), entry.name, at->second, shard));
      }
      total += entry.end - entry.begin;
    }
  }
  const nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file(folder / index_name(stem), index.dump(2) + "\n");
}

}  // namespace fem::exec
