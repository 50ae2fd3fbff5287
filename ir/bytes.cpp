#include "ir/bytes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace fem::ir {
namespace {

struct ByteUnit {
  std::string_view name;
  double bytes;
};
constexpr std::array kUnits{
    ByteUnit{"", 1},         ByteUnit{"B", 1},        ByteUnit{"kB", 1e3},     ByteUnit{"MB", 1e6},
    ByteUnit{"GB", 1e9},     ByteUnit{"TB", 1e12},    ByteUnit{"KiB", 0x1p10}, ByteUnit{"MiB", 0x1p20},
    ByteUnit{"GiB", 0x1p30}, ByteUnit{"TiB", 0x1p40},
};
constexpr double kMost = 0x1p62;

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) return std::nullopt;
  std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  while (name.starts_with(' ')) name.remove_prefix(1);
  for (const ByteUnit& unit : kUnits) {
    if (unit.name != name) continue;
    const double bytes = number * unit.bytes;
    if (bytes > kMost) return std::nullopt;
    return std::llround(bytes);
  }
  return std::nullopt;
}

std::string nearest_bytes(std::string_view text) {
  std::string number, word;
  for (const char c : text) {
    const bool of_number = (c >= '0' && c <= '9') || c == '.' || c == ',';
    if (word.empty() && of_number) {
      number += c == ',' ? '.' : c;
    } else if (c != ' ') {
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  constexpr std::string_view kLetters = "kmgt", kPrefixes = "KMGT";
  const std::size_t size = word.empty() ? std::string_view::npos : kLetters.find(word.front());
  std::string near = number;
  if (size != std::string_view::npos) {
    const bool binary = word.size() == 1 || word.find("ib") != std::string::npos;
    near += binary ? std::string{kPrefixes[size], 'i', 'B'} : std::string{size == 0 ? 'k' : kPrefixes[size], 'B'};
  } else if (word.starts_with('b')) {
    near += 'B';
  }
  return parse_bytes(near) ? near : std::string();
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kNames.size(); ++unit) value /= 1024;
  char text[48];
  const int digits = unit == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f %s", digits, value, kNames[unit]);
  return text;
}

}  // namespace fem::ir
