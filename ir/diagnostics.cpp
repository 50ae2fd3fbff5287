#include "ir/diagnostics.hpp"

#include <algorithm>
#include <utility>

namespace fem::ir {
namespace {

constexpr std::size_t kQuoteWidth = 160;  // longer lines are cut around the caret

std::string_view word(Severity severity) {
  switch (severity) {
    case Severity::Error: return "error";
    case Severity::Warning: return "warning";
    case Severity::Note: return "note";
  }
  return "";
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; }

// Control bytes of a broken file must not reach the terminal; tabs stay, they align the caret.
char printable(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < ' ' && c != '\t') || byte == 0x7f ? '?' : c;
}

void append_quote(std::string& out, std::string_view line, int column) {
  std::size_t caret = std::min<std::size_t>(static_cast<std::size_t>(std::max(column, 1) - 1), line.size());
  if (line.size() > kQuoteWidth) {
    std::size_t begin = caret > kQuoteWidth / 2 ? caret - kQuoteWidth / 2 : 0;
    while (begin > 0 && is_continuation(line[begin])) --begin;
    line = line.substr(begin, kQuoteWidth);
    caret -= begin;
  }
  std::string marks = "  ";
  out += "  ";
  for (std::size_t i = 0; i < line.size(); ++i) {
    out += printable(line[i]);
    if (i < caret && !is_continuation(line[i])) marks += line[i] == '\t' ? '\t' : ' ';
  }
  out += '\n';
  if (column > 0) out += marks + "^\n";
}

void append(std::string& out, const Diagnostic& d) {
  if (!d.where.file.empty()) {
    out += d.where.file + ':';
    if (d.where.line > 0) {
      out += std::to_string(d.where.line) + ':';
      if (d.where.column > 0) out += std::to_string(d.where.column) + ':';
    }
    out += ' ';
  }
  out += word(d.severity);
  out += ": ";
  for (const char c : d.message) out += c == '\n' ? c : printable(c);
  if (!d.code.empty()) out += " [" + d.code + ']';
  out += '\n';
  if (!d.line_text.empty()) append_quote(out, d.line_text, d.where.column);
}

// Optimal string alignment: insertions, deletions, substitutions and transpositions of neighbours cost one each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

void DiagnosticSink::report(Diagnostic diagnostic) {
  errors_ += diagnostic.severity == Severity::Error;
  diagnostics_.push_back(std::move(diagnostic));
}

void DiagnosticSink::error(SourceLocation where, std::string message, std::string code, std::string line_text) {
  report({Severity::Error, std::move(where), std::move(message), std::move(code), std::move(line_text)});
}

void DiagnosticSink::warning(SourceLocation where, std::string message) {
  report({Severity::Warning, std::move(where), std::move(message), {}, {}});
}

void DiagnosticSink::note(SourceLocation where, std::string message) {
  report({Severity::Note, std::move(where), std::move(message), {}, {}});
}

void DiagnosticSink::clear() {
  diagnostics_.clear();
  errors_ = 0;
}

std::string DiagnosticSink::text() const {
  std::string out;
  for (const Diagnostic& d : diagnostics_) append(out, d);
  return out;
}

SourceText::SourceText(std::string file, std::string text) : file_(std::move(file)), text_(std::move(text)) {
  starts_.push_back(0);
  for (std::size_t at = text_.find('\n'); at != std::string::npos; at = text_.find('\n', at + 1)) {
    if (at + 1 < text_.size()) starts_.push_back(at + 1);
  }
}

std::string_view SourceText::line(int number) const {
  if (number < 1 || number > lines()) return {};
  const std::size_t begin = starts_[static_cast<std::size_t>(number - 1)];
  std::size_t end = number < lines() ? starts_[static_cast<std::size_t>(number)] : text_.size();
  if (end > begin && text_[end - 1] == '\n') --end;
  if (end > begin && text_[end - 1] == '\r') --end;
  return std::string_view(text_).substr(begin, end - begin);
}

void SourceText::error(DiagnosticSink& sink, int line, int column, std::string message, std::string code) const {
  sink.error({file_, line, column}, std::move(message), std::move(code), std::string(this->line(line)));
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongestWord = 128;  // nobody mistypes more; keeps hostile input cheap
  if (word.empty() || word.size() > kLongestWord) return {};
  std::string_view best;
  std::size_t best_distance = kLongestWord;
  for (const std::string_view candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t shorter = std::min(word.size(), candidate.size());
    const std::size_t allowed = std::max<std::size_t>(1, longer / 3);
    if (longer - shorter > allowed) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view best = nearest(word, candidates);
  return best.empty() ? std::string() : ", did you mean '" + std::string(best) + "'?";
}

}  // namespace fem::ir
