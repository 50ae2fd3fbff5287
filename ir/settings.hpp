// The settings of a run as plain data, generated from settings.def, with a table for readers and printers.
#pragma once

#include <cstdint>
#include <limits>
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
#define SETTING(section, key, type, value, allowed, change, doc) setting_type::type key = value;
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

// What the value of a row may be. All integers are at most kMostInt.
struct AllowedValues {
  std::string_view choices;  // of a Text: "a|b|c", empty: any
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
};
inline constexpr double kMostInt = 9007199254740992.0;  // 2^53: integers up to here are exact as double
inline constexpr double kMostCount = std::numeric_limits<std::int32_t>::max();
inline constexpr double kMostUnits = std::numeric_limits<std::int16_t>::max() - 2;
inline constexpr double kMostRanks = std::numeric_limits<std::int16_t>::max();
inline constexpr double kMostSize = 1 << 24;
inline constexpr double kMostScale = 1099511627776.0;  // 2^40

// A row of settings.def.
struct SettingInfo {
  std::string_view section, key;
  SettingType type;
  AllowedValues allowed;
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

// "..." with \", \\ and \xHH, as plan text and YAML read it: the inverse of Cursor::value in parse_line.hpp.
std::string quoted(std::string_view text);

// The value as it stands in a plan's header: integers in decimal, the shortest decimal that reads back to the same
// double, true or false, lists as 1,2,3 ("" when empty), texts quoted with "..." where they hold a blank, a quote, #,
// a backslash, a control byte, or nothing.
std::string setting_text(const Settings& settings, const SettingInfo& row);

// "between 1 and 3", "at least 1", "above 0"; empty where any number is allowed, and for what is no number.
std::string limit_text(const SettingInfo& row);
// Whether a number lies within its row's limits; true for what is no number.
bool within_limits(const Settings& settings, const SettingInfo& row);

// Sets the value from its text (unquoted). On failure returns the reason ("not an integer", "not one of fp32|bf16",
// with the nearest word), and leaves the value alone; on success an empty string.
std::string set_from_text(Settings& settings, const SettingInfo& row, std::string_view text);

}  // namespace fem::ir
