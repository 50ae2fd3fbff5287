#include "executor/run_options.hpp"

#include <bit>
#include <vector>

namespace fem::exec {
namespace {

std::string full_key(const ir::SettingInfo& row) { return std::string(row.section) + "." + std::string(row.key); }

const ir::SettingInfo* find_key(std::string_view key) {
  const auto dot = key.find('.');
  return dot == std::string_view::npos ? nullptr : ir::find_setting(key.substr(0, dot), key.substr(dot + 1));
}

std::string unknown_key(std::string_view key) {
  std::vector<std::string> keys;
  for (const ir::SettingInfo& row : ir::setting_table())
    if (row.change == ir::SettingChange::Run) keys.push_back(full_key(row));
  const std::vector<std::string_view> names(keys.begin(), keys.end());
  std::string text = "unknown setting '" + std::string(key) + "'" + ir::did_you_mean(key, names);
  if (ir::nearest(key, names).empty()) {
    text += "; a run may set";
    for (std::string_view name : names) text += " " + std::string(name);
  }
  return text;
}

}  // namespace

bool override_setting(ir::Settings& settings, std::string_view assignment, ir::DiagnosticSink& sink) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    sink.error({}, "--set takes section.key=value, not '" + std::string(assignment) + "'");
    return false;
  }
  const std::string_view key = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  const ir::SettingInfo* row = find_key(key);
  if (!row) {
    sink.error({}, unknown_key(key));
    return false;
  }
  if (row->change == ir::SettingChange::Plan) {
    sink.error({}, full_key(*row) + " is part of the plan: compile again with femc plan CONFIG --set " +
                       std::string(assignment));
    return false;
  }
  const std::string problem = ir::set_from_text(settings, *row, value);
  if (!problem.empty()) sink.error({}, full_key(*row) + ": '" + std::string(value) + "' is " + problem);
  return problem.empty();
}

bool check_run_settings(const ir::Settings& settings, ir::DiagnosticSink& sink) {
  const int before = sink.errors();
  for (const ir::SettingInfo& row : ir::setting_table())
    if (row.change == ir::SettingChange::Run && !ir::within_limits(settings, row))
      sink.error({}, full_key(row) + " is " + ir::setting_text(settings, row) + ", must be " + ir::limit_text(row));
  const auto power_of_two = [&](const char* key, std::int64_t value) {
    if (value <= 0) return;  // below its limit
    const auto below = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(value)));
    if (value != below)
      sink.error({}, std::string(key) + " is " + std::to_string(value) + ", must be a power of two; nearest: " +
                         std::to_string(below) + " or " + std::to_string(2 * below));
  };
  power_of_two("precision.loss_scale", settings.precision.loss_scale);
  power_of_two("precision.loss_scale_factor", settings.precision.loss_scale_factor);
  return sink.errors() == before;
}

}  // namespace fem::exec
