// The folder of one checkpoint: its name, its marker, its training state as JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "executor/weights/checkpoint.hpp"
#include "executor/weights/model_weights.hpp"

namespace fem::exec {

inline constexpr const char* kMarkerFile = "complete";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kLatestFile = "latest";
// A complete checkpoint that a new save of the same step is about to replace.
inline constexpr const char* kReplacedEnding = ".replaced";
// A checkpoint beyond the step that was saved last.
inline constexpr const char* kAbandonedEnding = ".abandoned";

std::string step_name(std::int64_t step);  // "step-00000020"
std::optional<std::int64_t> parse_step_name(const std::string& name);  // also with kReplacedEnding

// The marker lists every file of the folder with its size: {"version": 1, "files": {"config.json": 612, ...}}.
void write_marker(const std::filesystem::path& folder);
// Why the folder is no complete checkpoint; "" if it is one.
std::string incomplete_reason(const std::filesystem::path& folder);

// The optimizer's tensors, as model_tensors is for the weights.
std::vector<ModelTensor> optimizer_tensors(const ir::Settings& settings);

void write_state(const std::filesystem::path& folder, const TrainingState& state);
TrainingState read_state(const std::filesystem::path& folder);

}  // namespace fem::exec
