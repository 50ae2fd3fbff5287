#include "compiler/config_text.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "compiler/config.hpp"

namespace fem::compiler {
namespace {

// A word that YAML can take for nothing but this text.
bool is_word(std::string_view text) {
  const auto letter = [](char c) {
    const bool alphabetic = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return alphabetic || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/';
  };
  return !text.empty() && std::ranges::all_of(text, letter) && text != "null" && text != "Null" && text != "NULL";
}

std::string value_text(const ir::Settings& settings, const ir::SettingInfo& row) {
  if (row.type == ir::SettingType::Ints) return "[" + ir::setting_text(settings, row) + "]";
  if (row.type != ir::SettingType::Text) return ir::setting_text(settings, row);
  ir::Settings copy = settings;
  const std::string& text = *std::get<std::string*>(row.at(copy));
  return is_word(text) ? text : ir::quoted(text);
}

}  // namespace

std::string configuration_text(const ir::Settings& settings, std::span<const std::string_view> besides) {
  const ir::Settings defaults;
  std::string out;
  std::string_view section;
  for (const ir::SettingInfo& row : ir::setting_table()) {
    const std::string key = fmt::format("{}.{}", row.section, row.key);
    const auto among = [&](std::span<const std::string_view> keys) {
      return std::ranges::find(keys, key) != keys.end();
    };
    const bool is_default = ir::setting_text(settings, row) == ir::setting_text(defaults, row);
    if (is_default && !among(required_settings()) && !among(besides)) continue;
    if (section != row.section) out += fmt::format("{}:\n", row.section);
    section = row.section;
    out += fmt::format("  {}: {}\n", row.key, value_text(settings, row));
  }
  return out;
}

}  // namespace fem::compiler
