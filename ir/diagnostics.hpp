// Errors in what the user wrote: a position, a sentence, the line with a caret, an invariant's code where one exists.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fem::ir {

// 1-based; 0 means unknown (then it is not printed).
struct SourceLocation {
  std::string file;
  int line = 0, column = 0;
};

enum class Severity { Error, Warning, Note };

struct Diagnostic {
  Severity severity = Severity::Error;
  SourceLocation where;
  std::string message;    // one sentence, no full stop
  std::string code;       // "V07", or empty
  std::string line_text;  // the source line, printed with a caret under `where.column`; may be empty
};

// Collects diagnostics. The ir, the passes and the compiler report here and return an empty optional;
// nothing below the command line prints or exits.
class DiagnosticSink {
 public:
  void report(Diagnostic diagnostic);
  void error(SourceLocation where, std::string message, std::string code = {}, std::string line_text = {});
  void warning(SourceLocation where, std::string message);
  void note(SourceLocation where, std::string message);

  bool has_errors() const { return errors_ > 0; }
  int errors() const { return errors_; }
  std::span<const Diagnostic> all() const { return diagnostics_; }
  void clear();

  // All of them as text: "file:3:7: error: unknown key 'layer', did you mean 'layers'? [V07]", the line, the caret.
  std::string text() const;

 private:
  std::vector<Diagnostic> diagnostics_;
  int errors_ = 0;
};

// A named text whose lines can be quoted in diagnostics.
class SourceText {
 public:
  SourceText(std::string file, std::string text);

  const std::string& file() const { return file_; }
  std::string_view text() const { return text_; }
  int lines() const { return static_cast<int>(starts_.size()); }
  std::string_view line(int number) const;  // 1-based, without the line end; "" outside
  void error(DiagnosticSink& sink, int line, int column, std::string message, std::string code = {}) const;

 private:
  std::string file_, text_;
  std::vector<std::size_t> starts_;
};

// The candidate with the smallest edit distance (transpositions count once), or "" when none is close:
// at most a third of the longer word, and at least one edit is allowed.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// ", did you mean 'layers'?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace fem::ir
