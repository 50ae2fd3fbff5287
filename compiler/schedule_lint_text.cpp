// What a schedule file says without meaning it: names that nothing uses, a reference without text.
#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "compiler/schedule_lint.hpp"
#include "compiler/yaml.hpp"

namespace fem::compiler {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The words of the file's expressions. Keys are none, and of a message only what stands in braces.
class UsedNames {
 public:
  void collect(const YAML::Node& node) {
    if (node.IsScalar()) return words(node.Scalar());
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) collect(item);
    }
    if (node.IsMap()) {
      for (const auto& entry : node) {
        if (entry.first.IsScalar() && entry.first.Scalar() == "message") {
          message(entry.second);
        } else {
          collect(entry.second);
        }
      }
    }
  }
  bool has(const std::string& name) const { return names_.contains(name); }

 private:
  void words(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
      std::size_t end = i;
      while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) ++end;
      if (end > i && is_letter(text[i])) names_.emplace(text.substr(i, end - i));
      i = std::max(end, i + 1);
    }
  }
  void message(const YAML::Node& node) {
    if (!node.IsScalar()) return;
    const std::string& text = node.Scalar();
    for (std::size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
      const std::size_t close = text.find('}', open);
      words(std::string_view(text).substr(open, close - open));
    }
  }

  std::set<std::string, std::less<>> names_;
};

}  // namespace

void check_schedule_text(const Schedule& schedule, ir::DiagnosticSink& sink) {
  const auto file = YamlFile::parse(schedule.source, sink);
  if (!file) return;
  constexpr std::array<std::string_view, 5> kNoExpressions = {"name", "reference", "placement", "chunks", "backward"};
  const YamlMap map = read_open_map(*file, file->root(), "a schedule", sink);
  UsedNames used;
  for (const YamlEntry& entry : map.entries) {
    if (std::ranges::find(kNoExpressions, entry.key) == kNoExpressions.end()) used.collect(entry.value);
  }
  for (const auto& [key, what] : {std::pair{"parameters", "parameter"}, std::pair{"let", "name"}}) {
    const YAML::Node* names = map.find(key);
    if (!names) continue;
    for (const YamlEntry& entry : read_open_map(*file, *names, key, sink).entries) {
      if (used.has(entry.key)) continue;
      file->error(sink, entry.key_node, fmt::format("{} '{}' is never used", what, entry.key));
    }
  }
  const auto blank = [](char c) { return c == ' ' || c == '\n'; };
  if (!std::ranges::all_of(schedule.reference, blank)) return;
  if (const YAML::Node* node = map.find("reference")) file->error(sink, *node, "the reference is empty");
}

}  // namespace fem::compiler
