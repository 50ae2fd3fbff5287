#include "executor/weights/checkpoint_folder.hpp"

#include <bit>
#include <charconv>

#include <fmt/format.h>

#include "executor/error.hpp"
#include "executor/weights/json_reader.hpp"

namespace fem::exec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::uint64_t kVersion = 1;

void check_version(const std::string& file, const json& object) {
  const json& version = member(file, "", object, "version");
  if (version != kVersion) value_error(file, "version", version, std::to_string(kVersion));
}

std::int64_t read_count(const std::string& file, const json& object, const char* key) {
  return static_cast<std::int64_t>(to_count(file, key, member(file, "", object, key)));
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<std::int64_t> parse_step_name(const std::string& name) {
  std::string_view digits = name;
  if (digits.ends_with(kReplacedEnding)) digits.remove_suffix(std::string_view(kReplacedEnding).size());
  if (!digits.starts_with(kStepPrefix)) return std::nullopt;
  digits.remove_prefix(kStepPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  return step;
}

void write_marker(const fs::path& folder) {
  json files = json::object();
  for (const fs::path& path : list_folder(folder)) files[path.filename().string()] = file_bytes(path);
  write_file(folder / kMarkerFile, json{{"version", kVersion}, {"files", files}}.dump(2) + "\n");
}

std::string incomplete_reason(const fs::path& folder) {
  const fs::path marker = folder / kMarkerFile;
  if (!path_exists(marker)) return fmt::format("{} is missing", marker.string());
  try {
    const MappedFile file(marker);
    const json object = parse_object(file.path(), file.text());
    check_version(file.path(), object);
    const json& files = member(file.path(), "", object, "files");
    if (!files.is_object()) value_error(file.path(), "files", files, "an object");
    for (const auto& [name, value] : files.items()) {
      const std::uint64_t expected = to_count(file.path(), "files: " + name, value);
      const fs::path path = folder / name;
      if (!path_exists(path)) return fmt::format("{} is missing", path.string());
      if (const std::uint64_t found = file_bytes(path); found != expected) {
        return fmt::format("{}: size: found {} bytes, expected {}", path.string(), found, expected);
      }
    }
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return "";
}

void write_state(const fs::path& folder, const TrainingState& state) {
  json object{{"version", kVersion},
              {"step", state.step},
              {"consumed_samples", state.consumed_samples},
              {"train_tokens", state.train_tokens},
              {"skips_in_a_row", state.skips_in_a_row},
              {"settings", state.settings}};
  if (state.loss_scale.scale != 0)
    object["loss_scale"] = {{"scale", state.loss_scale.scale}, {"steady", state.loss_scale.steady}};
  write_file(folder / kStateFile, object.dump(2) + "\n");
}

TrainingState read_state(const fs::path& folder) {
  const MappedFile file(folder / kStateFile);
  const json object = parse_object(file.path(), file.text());
  check_version(file.path(), object);
  TrainingState state;
  state.step = read_count(file.path(), object, "step");
  state.consumed_samples = read_count(file.path(), object, "consumed_samples");
  state.train_tokens = read_count(file.path(), object, "train_tokens");
  if (object.contains("skips_in_a_row")) state.skips_in_a_row = read_count(file.path(), object, "skips_in_a_row");
  if (object.contains("loss_scale")) {
    const json& kept = object["loss_scale"];
    state.loss_scale = {read_count(file.path(), kept, "scale"), read_count(file.path(), kept, "steady")};
    if (!std::has_single_bit(static_cast<std::uint64_t>(state.loss_scale.scale)))
      value_error(file.path(), "loss_scale: scale", kept["scale"], "a power of two");
  }
  const json& settings = member(file.path(), "", object, "settings");
  if (!settings.is_object()) value_error(file.path(), "settings", settings, "an object of strings");
  for (const auto& [key, value] : settings.items()) {
    state.settings[key] = to_text(file.path(), "settings: " + key, value);
  }
  return state;
}

}  // namespace fem::exec
