#include "ir/settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "ir/diagnostics.hpp"

namespace fem::ir {
namespace {

constexpr std::array kSections{
#define SECTION(section, Struct, doc) SectionInfo{#section, doc},
#define SETTING(...)
#define END_SECTION(...)
#include "ir/settings.def"
};

constexpr double kAboveZero = std::numeric_limits<double>::min();  // the least positive number: zero is excluded
constexpr double kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;

#define ANY AllowedValues{}
#define ONE_OF(words) AllowedValues{.choices = words}
#define AT_LEAST(n) AllowedValues{.least = n}
#define BETWEEN(n, m) AllowedValues{.least = n, .most = m}
#define ABOVE_ZERO AT_LEAST(kAboveZero)
#define BELOW_ONE BETWEEN(0, kBelowOne)
constexpr std::array kSettings{
#define SECTION(...)
#define SETTING(section, key, type, value, allowed, change, doc)                       \
  SettingInfo{#section, #key,  SettingType::type, allowed, SettingChange::change, doc, \
              [](Settings& s) -> SettingRef { return &s.section.key; }},
#define END_SECTION(...)
#include "ir/settings.def"
};

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
void append_number(std::string& out, T value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  out.append(buffer, result.ptr);
}

bool is_plain(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte == 0x7f || c == '"' || c == '\\' || c == '#') return false;
  }
  return !text.empty();
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string read(std::int64_t& value, const SettingInfo&, std::string_view text) {
  const auto parsed = number<std::int64_t>(text);
  if (!parsed) return "not an integer";
  value = *parsed;
  return {};
}

std::string read(double& value, const SettingInfo&, std::string_view text) {
  const auto parsed = number<double>(text);
  if (!parsed || !std::isfinite(*parsed)) return "not a finite number";
  value = *parsed;
  return {};
}

std::string read(bool& value, const SettingInfo&, std::string_view text) {
  if (text != "true" && text != "false") return "not one of true|false";
  value = text == "true";
  return {};
}

std::string read(std::string& value, const SettingInfo& row, std::string_view text) {
  if (!row.allowed.choices.empty()) {
    const std::vector<std::string_view> words = split(row.allowed.choices, '|');
    bool known = false;
    for (const std::string_view word : words) known = known || word == text;
    if (!known) return "not one of " + std::string(row.allowed.choices) + did_you_mean(text, words);
  }
  value = text;
  return {};
}

std::string read(std::vector<std::int64_t>& value, const SettingInfo&, std::string_view text) {
  std::vector<std::int64_t> parsed;
  if (!text.empty()) {
    for (const std::string_view part : split(text, ',')) {
      const auto item = number<std::int64_t>(part);
      if (!item) return "not a list of integers as 1,2,3";
      parsed.push_back(*item);
    }
  }
  value = std::move(parsed);
  return {};
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < ' ' || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out += '"';
}

std::span<const SectionInfo> setting_sections() { return kSections; }

std::span<const SettingInfo> setting_table() { return kSettings; }

const SettingInfo* find_setting(std::string_view section, std::string_view key) {
  for (const SettingInfo& row : kSettings) {
    if (row.section == section && row.key == key) return &row;
  }
  return nullptr;
}

std::string setting_text(const Settings& settings, const SettingInfo& row) {
  std::string out;
  // One accessor serves readers and writers; here it is only read through.
  std::visit(
      [&out](const auto* value) {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool>) {
          out = *value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string>) {
          out = is_plain(*value) ? *value : quoted(*value);
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
          for (const std::int64_t item : *value) {
            if (!out.empty()) out += ',';
            append_number(out, item);
          }
        } else {
          append_number(out, *value);
        }
      },
      row.at(const_cast<Settings&>(settings)));
  return out;
}

std::string limit_text(const SettingInfo& row) {
  const auto number = [](double v) { return std::to_string(static_cast<std::int64_t>(v)); };
  const auto [choices, least, most] = row.allowed;
  if (!std::isfinite(least)) return "";
  if (least == kAboveZero) return "above 0";
  if (most == kBelowOne) return "at least 0 and below 1";
  return std::isfinite(most) ? "between " + number(least) + " and " + number(most) : "at least " + number(least);
}

bool within_limits(const Settings& settings, const SettingInfo& row) {
  if (!std::isfinite(row.allowed.least)) return true;
  const auto within = [&](double value, double most) {
    return std::isfinite(value) && value >= row.allowed.least && value <= most;
  };
  // One accessor serves readers and writers; here it is only read through.
  const SettingRef ref = row.at(const_cast<Settings&>(settings));
  if (const auto* integer = std::get_if<setting_type::Int*>(&ref))
    return within(static_cast<double>(**integer), std::min(row.allowed.most, kMostInt));
  if (const auto* real = std::get_if<setting_type::Real*>(&ref)) return within(**real, row.allowed.most);
  return true;
}

std::string set_from_text(Settings& settings, const SettingInfo& row, std::string_view text) {
  return std::visit([&](auto* value) { return read(*value, row, text); }, row.at(settings));
}

}  // namespace fem::ir
