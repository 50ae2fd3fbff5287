#include "ir/parse_line.hpp"

#include <charconv>

namespace fem::ir::parsing {
namespace {

bool ends_word(char c) { return c == ' ' || c == '\t' || c == ',' || c == '#'; }

// Lists are values too (1,2,3), so a comma does not end one.
bool ends_value(char c) { return c == ' ' || c == '\t' || c == '#'; }

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

}  // namespace

std::string_view Cursor::word() const {
  std::size_t end = at_;
  while (end < line_.size() && !ends_word(line_[end])) ++end;
  return line_.substr(at_, end - at_);
}

bool Cursor::accept_comma() {
  if (peek() != ',') return false;
  skip(1);
  return true;
}

std::optional<std::string> Cursor::value() {
  if (peek() == '"') return quoted_value();
  std::size_t end = at_;
  while (end < line_.size() && !ends_value(line_[end]) && line_[end] != '"') ++end;
  std::string out(line_.substr(at_, end - at_));
  skip(end - at_);
  return out;
}

std::optional<std::string> Cursor::quoted_value() {
  std::string out;
  const std::size_t opening = at_++;
  while (at_ < line_.size() && line_[at_] != '"') {
    if (line_[at_] != '\\') {
      out += line_[at_++];
      continue;
    }
    const std::string_view rest = line_.substr(at_ + 1);
    if (rest.starts_with('"') || rest.starts_with('\\')) {
      out += rest[0];
      at_ += 2;
    } else if (rest.size() >= 3 && rest[0] == 'x' && hex_digit(rest[1]) && hex_digit(rest[2])) {
      out += static_cast<char>(*hex_digit(rest[1]) * 16 + *hex_digit(rest[2]));
      at_ += 4;
    } else {
      return std::nullopt;
    }
  }
  if (at_ == line_.size()) {
    at_ = opening;
    return std::nullopt;
  }
  skip(1);
  return out;
}

std::optional<std::int64_t> integer(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) return std::nullopt;
  return value;
}

bool Reporter::error(int column, std::string message) {
  if (full()) return false;
  source_.error(sink_, line, column, std::move(message));
  if (++errors_ == kMostErrors) sink_.note({source_.file(), line, 0}, "too many errors, the rest was not read");
  return false;
}

std::string quote(std::string_view word) {
  constexpr std::size_t kLongest = 60;
  std::string out = "'";
  out += word.substr(0, kLongest);
  return out += word.size() > kLongest ? "...'" : "'";
}

}  // namespace fem::ir::parsing
