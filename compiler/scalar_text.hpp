// A YAML scalar that remembers where each of its characters stands in the file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/diagnostics.hpp"

namespace fem::compiler {

using SourcePtr = std::shared_ptr<const ir::SourceText>;

// 1-based.
struct Position {
  int line = 0, column = 0;
  friend bool operator==(const Position&, const Position&) = default;
};

class ScalarText {
 public:
  ScalarText() = default;
  // `start` is where the scalar begins in the file, at its opening quote or block indicator where it has one.
  ScalarText(SourcePtr source, std::string text, Position start);

  // A text that stands in the source as it is, without YAML around it.
  static ScalarText plain(SourcePtr source, std::string text, Position start);

  const std::string& text() const { return text_; }
  const SourcePtr& source() const { return source_; }
  Position at(std::size_t offset) const;  // of the character text()[offset]; the end for offset >= size
  void error(ir::DiagnosticSink& sink, std::size_t offset, std::string message) const;
  // The part [offset, offset + count), with its positions.
  ScalarText part(std::size_t offset, std::size_t count) const;

 private:
  SourcePtr source_;
  std::string text_;
  std::vector<Position> positions_;  // of every character, and of the end
};

}  // namespace fem::compiler
