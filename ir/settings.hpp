// The settings of a run as plain data, generated from settings.def, with a table for readers and printers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fem::ir {

namespace setting_type {
using Int = std::int64_t;
using Real = double;
using Bool = bool;
using Text = std::string;
using Ints = std::vector<std::int64_t>;
}  // namespace setting_type

// settings.model.layers and so on: one struct per section, one member per key.
struct Settings {
#define SECTION(section, Struct, doc) struct Struct {
#define SETTING(section, key, type, value, choices, change, doc) setting_type::type key = value;
#define END_SECTION(section, Struct) \
  friend bool operator==(const Struct&, const Struct&) = default; \
  } section;
#include "ir/settings.def"
  friend bool operator==(const Settings&, const Settings&) = default;
};

enum class SettingType : std::uint8_t { Int, Real, Bool, Text, Ints };
enum class SettingChange : std::uint8_t { Plan, Run };  // who may change it: femc only, or femrun too

using SettingRef = std::variant<setting_type::Int*, setting_type::Real*, setting_type::Bool*, setting_type::Text*,
                                setting_type::Ints*>;

// A row of settings.def.
struct SettingInfo {
  std::string_view section, key;
  SettingType type;
  std::string_view choices;  // "a|b|c" or empty
  SettingChange change;
  std::string_view doc;
  SettingRef (*at)(Settings&);  // where the value lies
};

struct SectionInfo {
  std::string_view name, doc;
};

std::span<const SectionInfo> setting_sections();     // in file order
std::span<const SettingInfo> setting_table();        // in file order
const SettingInfo* find_setting(std::string_view section, std::string_view key);  // nullptr: no such row

// The value as it stands in a plan's header: integers in decimal, the shortest decimal that reads back to the same
// double, true or false, lists as 1,2,3 ("" when empty), texts quoted with "..." where they hold a blank, a quote, #,
// a backslash, a control byte, or nothing.
// "..." with \", \\ and \xHH, as plan text and YAML read it: the inverse of Cursor::value in parse_line.hpp.
std::string quoted(std::string_view text);

std::string setting_text(const Settings& settings, const SettingInfo& row);

// Sets the value from its text (unquoted). On failure returns the reason ("not an integer", "not one of fp32|bf16",
// with the nearest word), and leaves the value alone; on success an empty string.
std::string set_from_text(Settings& settings, const SettingInfo& row, std::string_view text);

}  // namespace fem::ir
