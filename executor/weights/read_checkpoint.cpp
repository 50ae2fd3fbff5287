#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "executor/error.hpp"
#include "executor/weights/checkpoint.hpp"
#include "executor/weights/checkpoint_folder.hpp"
#include "executor/weights/hf_config.hpp"
#include "executor/weights/model_weights.hpp"

namespace fem::exec {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  std::int64_t step;
  bool current;  // not set aside
  fs::path path;
};

// Newest first.
std::vector<Candidate> candidates(const fs::path& dir) {
  std::vector<Candidate> found;
  if (!path_exists(dir)) return found;
  for (const fs::path& path : list_folder(dir)) {
    const std::string name = path.filename().string();
    const std::optional<std::int64_t> step = parse_step_name(name);
    if (step) found.push_back({*step, !name.ends_with(kReplacedEnding), path});
  }
  std::ranges::sort(found, std::ranges::greater(), [](const Candidate& c) { return std::tie(c.step, c.current); });
  return found;
}

// What must not change while a run goes on: without these the data has a gap or a repeat, or the weights do not fit.
bool fixed_on_resume(const ir::SettingInfo& row) {
  if (row.section == "model") return row.key != "init_std" && row.key != "dropout";
  if (row.section == "batch") return row.key == "global" || row.key == "seq_len";
  return row.section == "data" && row.key == "seed";
}

// What may change, and changes the numbers. The loss scale does not begin anew.
bool worth_a_warning(const ir::SettingInfo& row) {
  if (row.section == "precision") return row.key != "loss_scale";
  return row.section == "optimizer" || (row.section == "run" && row.key == "steps") || row.key == "dropout";
}

void compare_settings(const std::string& file, const TrainingState& state, const ir::Settings& settings,
                      std::vector<std::string>* warnings) {
  for (const ir::SettingInfo& row : ir::setting_table()) {
    const std::string key = fmt::format("{}.{}", row.section, row.key), now = ir::setting_text(settings, row);
    const auto saved = state.settings.find(key);
    if (saved == state.settings.end() || saved->second == now) continue;
    if (fixed_on_resume(row)) {
      throw ExecutionError(
          fmt::format("{}: {}: the checkpoint was written with {}, the plan has {}; a resumed run must keep it", file,
                      key, saved->second, now));
    }
    if (worth_a_warning(row) && warnings != nullptr) {
      warnings->push_back(fmt::format("{} changes from {} to {} at step {}", key, saved->second, now, state.step));
    }
  }
}

}  // namespace

std::optional<fs::path> newest_checkpoint(const fs::path& dir, std::vector<std::string>* warnings) {
  const auto usable = [&](const fs::path& folder) {
    const std::string reason = incomplete_reason(folder);
    if (!reason.empty() && warnings != nullptr) {
      warnings->push_back(fmt::format("skipped the incomplete checkpoint {}: {}", folder.string(), reason));
    }
    return reason.empty();
  };
  if (path_exists(dir / kMarkerFile)) return usable(dir) ? std::optional(dir) : std::nullopt;
  for (const Candidate& candidate : candidates(dir)) {
    if (usable(candidate.path)) return candidate.path;
  }
  return std::nullopt;
}

Checkpoint open_checkpoint(const fs::path& dir, const ir::Settings& settings, std::int64_t train_tokens,
                           std::vector<std::string>* warnings) {
  std::vector<std::string> skipped;
  const std::optional<fs::path> path = newest_checkpoint(dir, &skipped);
  if (!path) {
    throw ExecutionError(fmt::format("{}: no complete checkpoint{}{}", dir.string(), skipped.empty() ? "" : "; ",
                                     skipped.empty() ? "" : skipped.front()));
  }
  if (warnings != nullptr) warnings->insert(warnings->end(), skipped.begin(), skipped.end());
  const std::string state_file = (*path / kStateFile).string();
  TrainingState state = read_state(*path);
  compare_settings(state_file, state, settings, warnings);
  if (state.train_tokens != train_tokens) {
    field_error(state_file, "train_tokens", std::to_string(state.train_tokens),
                std::to_string(train_tokens) + ", the tokens of the training data");
  }
  TensorFolder optimizer(*path, "optimizer");
  check_tensors(optimizer, optimizer_tensors(settings));
  return {*path, std::move(state), open_weights(*path, settings), std::move(optimizer)};
}

}  // namespace fem::exec
