// One line of plan text under a cursor, and where its errors go. Used by the parser's files only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ir/diagnostics.hpp"

namespace fem::ir::parsing {

// Walks over one line; words are separated by blanks, and # outside quotes ends the line.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : line_(line) { skip_blanks(); }

  bool at_end() const { return at_ == line_.size(); }
  int column() const { return static_cast<int>(at_) + 1; }
  char peek() const { return at_end() ? '\0' : line_[at_]; }

  // The word under the cursor (up to a blank, a comma or a comment), without moving.
  std::string_view word() const;
  // Moves behind the first `characters` of the word, and behind the blanks that follow.
  void skip(std::size_t characters) {
    at_ += characters;
    skip_blanks();
  }
  // Moves on by exactly so many characters: a value may be empty, its place must not be lost.
  void step(std::size_t characters) { at_ += characters; }
  // Skips the word where it is exactly this one.
  bool accept(std::string_view expected) {
    if (word() != expected) return false;
    skip(expected.size());
    return true;
  }
  bool accept_comma();

  // A value after '=': a bare word, or "..." with \" \\ and \xHH. Starts under the cursor, be it at a blank, and
  // moves behind it.
  // nullopt: the quotes are not closed or an escape is unknown; `column()` is then the place.
  std::optional<std::string> value();

 private:
  void skip_blanks() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t')) ++at_;
    if (at_ < line_.size() && line_[at_] == '#') at_ = line_.size();
  }
  std::optional<std::string> quoted_value();

  std::string_view line_;
  std::size_t at_ = 0;
};

// Decimal digits with an optional minus, the whole of `text`, within the limits.
std::optional<std::int64_t> integer(std::string_view text, std::int64_t least, std::int64_t most);

// Reports with the current line. After a number of errors the rest of the file is not worth reading.
class Reporter {
 public:
  Reporter(const SourceText& source, DiagnosticSink& sink) : source_(source), sink_(sink) {}

  int line = 0;

  // Always false, so that a reader can `return report.error(...)`.
  bool error(int column, std::string message);
  bool failed() const { return errors_ > 0; }
  bool full() const { return errors_ >= kMostErrors; }

 private:
  static constexpr int kMostErrors = 20;
  const SourceText& source_;
  DiagnosticSink& sink_;
  int errors_ = 0;
};

std::string quote(std::string_view word);  // 'word', shortened where it is long

}  // namespace fem::ir::parsing
