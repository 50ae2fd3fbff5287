#include "compiler/scalar_text.hpp"

#include <algorithm>
#include <utility>

namespace fem::compiler {
namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Walks over the raw text of a file, line by line.
class RawCursor {
 public:
  RawCursor(const ir::SourceText& source, Position start) : source_(source), at_(start) {}

  Position position() const { return at_; }
  char peek() const {
    const std::string_view line = source_.line(at_.line);
    const auto index = static_cast<std::size_t>(at_.column - 1);
    return index < line.size() ? line[index] : at_.line < source_.lines() ? '\n' : '\0';
  }
  void next() {
    if (peek() == '\n') {
      at_ = {at_.line + 1, 1};
    } else if (peek() != '\0') {
      ++at_.column;
    }
  }
  void skip_blanks() {
    while (blank(peek())) next();
  }
  void skip_line() {
    while (peek() != '\n' && peek() != '\0') next();
    next();
  }

 private:
  const ir::SourceText& source_;
  Position at_;
};

}  // namespace

ScalarText::ScalarText(SourcePtr source, std::string text, Position start)
    : source_(std::move(source)), text_(std::move(text)) {
  RawCursor raw(*source_, start);
  if (raw.peek() == '"' || raw.peek() == '\'') {
    raw.next();
  } else if (raw.peek() == '|' || raw.peek() == '>') {
    raw.skip_line();
    raw.skip_blanks();
  }
  positions_.reserve(text_.size() + 1);
  for (char c : text_) {
    // A folded line break with its indentation is one blank of the text.
    if (raw.peek() != c && !blank(c)) raw.skip_blanks();
    positions_.push_back(raw.position());
    if (raw.peek() != c && blank(c)) {
      raw.skip_blanks();
    } else {
      raw.next();
    }
  }
  positions_.push_back(raw.position());
}

ScalarText ScalarText::plain(SourcePtr source, std::string text, Position start) {
  ScalarText result;
  result.source_ = std::move(source);
  result.text_ = std::move(text);
  for (std::size_t i = 0; i <= result.text_.size(); ++i) {
    result.positions_.push_back({start.line, start.column + static_cast<int>(i)});
  }
  return result;
}

Position ScalarText::at(std::size_t offset) const {
  return positions_.empty() ? Position{} : positions_[std::min(offset, positions_.size() - 1)];
}

void ScalarText::error(ir::DiagnosticSink& sink, std::size_t offset, std::string message) const {
  const Position where = at(offset);
  source_->error(sink, where.line, where.column, std::move(message));
}

ScalarText ScalarText::part(std::size_t offset, std::size_t count) const {
  ScalarText result;
  result.source_ = source_;
  result.text_ = text_.substr(offset, count);
  const auto begin = positions_.begin() + static_cast<std::ptrdiff_t>(offset);
  result.positions_.assign(begin, begin + static_cast<std::ptrdiff_t>(result.text_.size()) + 1);
  return result;
}

}  // namespace fem::compiler
