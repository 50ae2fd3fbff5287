#include "passes/reproducer.hpp"

#include <algorithm>

#include "ir/text.hpp"

namespace fem::passes {
namespace {

constexpr std::string_view kTitle = "femtotron reproducer v1", kRan = "ran", kRest = "rest";

// A line that begins with the word, or is the word.
bool begins(std::string_view line, std::string_view word) {
  return line.starts_with(word) && (line.size() == word.size() || line[word.size()] == ' ');
}

bool is_comment(std::string_view line) {
  return line.empty() || line.starts_with('#');
}

// The head of the file: number of its lines, and the two pipelines' lines.
struct Head {
  int ran = 0, rest = 0, lines = 0;
};

std::optional<Head> read_head(const ir::SourceText& source, ir::DiagnosticSink& sink) {
  Head head;
  bool titled = false;
  for (int n = 1; n <= source.lines() && head.lines == 0; ++n) {
    const std::string_view line = source.line(n);
    if (is_comment(line)) continue;
    if (!titled) {
      titled = line == kTitle;
      if (titled) continue;
      source.error(sink, n, 1, "a reproducer begins with the line '" + std::string(kTitle) + "'");
      return std::nullopt;
    }
    if (begins(line, kRan) && !head.ran) {
      head.ran = n;
    } else if (begins(line, kRest) && head.ran && !head.rest) {
      head.rest = n;
    } else if (head.rest) {
      head.lines = n - 1;
    } else {
      source.error(sink, n, 1, "expected a line '" + std::string(head.ran ? kRest : kRan) + " PIPELINE'");
      return std::nullopt;
    }
  }
  if (head.lines) return head;
  source.error(sink, source.lines(), 1, "the file ends before the plan");
  return std::nullopt;
}

// The lines of a part, all others blank: positions stay those of the file.
template <class Line>
ir::SourceText part(const ir::SourceText& source, int from, int to, Line line) {
  std::string text(static_cast<std::size_t>(from - 1), '\n');
  for (int n = from; n <= to; ++n) text += line(n) + "\n";
  return {source.file(), std::move(text)};
}

// Both pipelines as one, the words 'ran' and 'rest' blank; calls on the line of 'ran' have run.
std::optional<Pipeline> read_rest(const ir::SourceText& source, const Head& head, ir::DiagnosticSink& sink,
                                  std::span<const PassInfo> table) {
  const auto value = [&](int n, std::string_view word) {
    return std::string(word.size(), ' ') + std::string(source.line(n).substr(word.size()));
  };
  const std::string ran = value(head.ran, kRan);
  const bool any = ran.find_first_not_of(' ') != std::string::npos;
  const ir::SourceText text = part(source, head.ran, head.rest, [&](int n) -> std::string {
    if (n == head.ran) return any ? ran + "," : "";
    return n == head.rest ? value(n, kRest) : "";
  });
  auto pipeline = parse_pipeline(text, sink, table);
  if (!pipeline) return std::nullopt;
  std::erase_if(pipeline->calls, [&](const PassCall& call) { return call.where.line == head.ran; });
  return pipeline;
}

}  // namespace

std::string reproducer_text(const FailedPass& failed, const ir::DiagnosticSink& reported) {
  std::string text(kTitle);
  text += '\n';
  for (const ir::Diagnostic& d : reported.all()) {
    if (d.severity != ir::Severity::Error) continue;
    std::string line = "# error: " + d.message + (d.code.empty() ? "" : " [" + d.code + "]");
    std::ranges::replace(line, '\n', ' ');
    text += line + '\n';
  }
  text += std::string(kRan) + ' ' + failed.ran + '\n' + std::string(kRest) + ' ' + failed.rest + '\n';
  return text + ir::print_plan(failed.input);
}

std::optional<Reproducer> parse_reproducer(const ir::SourceText& source, ir::DiagnosticSink& sink,
                                           std::span<const PassInfo> table) {
  const auto head = read_head(source, sink);
  if (!head) return std::nullopt;
  auto rest = read_rest(source, *head, sink, table);
  const ir::SourceText text = part(source, head->lines + 1, source.lines(),
                                   [&](int n) { return std::string(source.line(n)); });
  auto input = ir::parse_plan(text, sink);
  if (!rest || !input) return std::nullopt;
  return Reproducer{std::move(*input), std::move(*rest)};
}

}  // namespace fem::passes
