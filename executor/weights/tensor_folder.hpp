// A folder of safetensors files that belong together: STEM.safetensors, or shards with STEM.safetensors.index.json.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "executor/weights/safetensors.hpp"

namespace fem::exec {

// "model.safetensors" for one part, else "model-00001-of-00004.safetensors" (part counts from 0).
std::string shard_name(std::string_view stem, int part, int parts);
std::string index_name(std::string_view stem);  // "model.safetensors.index.json"

// All tensors of the folder by name, in whichever file they lie. Opening reads every header, so an absent file, or a
// tensor that the index names and its file lacks, fails here with file and tensor named. Tensor bytes are read on
// demand.
class TensorFolder {
 public:
  TensorFolder(const std::filesystem::path& folder, std::string_view stem);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // sorted
  bool has(std::string_view name) const { return where_.find(name) != where_.end(); }

  // Throw ExecutionError that names folder and tensor where it is missing, and both shapes where they differ.
  const TensorEntry& entry(std::string_view name) const;
  const std::string& file_of(std::string_view name) const;
  at::Tensor load(std::string_view name) const;
  void load_into(std::string_view name, const at::Tensor& target) const;

 private:
  struct Place {
    const SafetensorsFile* file;
    const TensorEntry* entry;
  };
  void add_file(const std::filesystem::path& path);
  void read_index(const std::filesystem::path& path);
  const Place& place(std::string_view name) const;

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place, std::less<>> where_;
};

// Writes the index of shards 0 .. parts-1 from their headers (none for one part). A tensor in two shards is an error.
void write_tensor_index(const std::filesystem::path& folder, std::string_view stem, int parts);

}  // namespace fem::exec
