#include "compiler/yaml.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fem::compiler {

std::optional<YamlFile> YamlFile::parse(SourcePtr source, ir::DiagnosticSink& sink) {
  try {
    return YamlFile(source, YAML::Load(std::string(source->text())));
  } catch (const YAML::Exception& error) {
    const bool known = !error.mark.is_null();
    source->error(sink, known ? error.mark.line + 1 : 0, known ? error.mark.column + 1 : 0, "not YAML: " + error.msg);
    return std::nullopt;
  }
}

Position YamlFile::position(const YAML::Node& node) const {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? Position{} : Position{mark.line + 1, mark.column + 1};
}

ScalarText YamlFile::scalar(const YAML::Node& node) const { return ScalarText(source_, node.Scalar(), position(node)); }

void YamlFile::error(ir::DiagnosticSink& sink, const YAML::Node& node, std::string message) const {
  const Position at = position(node);
  source_->error(sink, at.line, at.column, std::move(message));
}

std::string_view describe(const YAML::Node& node) {
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return "a list";
  if (node.IsScalar()) return "a value";
  return "nothing";
}

const YAML::Node* YamlMap::find(std::string_view key) const {
  const auto found = std::ranges::find(entries, key, &YamlEntry::key);
  return found == entries.end() ? nullptr : &found->value;
}

YamlMap read_open_map(const YamlFile& file, const YAML::Node& node, std::string_view what, ir::DiagnosticSink& sink) {
  YamlMap map;
  if (!node.IsMap()) {
    file.error(sink, node, fmt::format("{} must be a map, found {}", what, describe(node)));
    map.ok = false;
    return map;
  }
  for (const auto& pair : node) {
    if (!pair.first.IsScalar()) {
      file.error(sink, pair.first, fmt::format("a key of {} must be a word, found {}", what, describe(pair.first)));
      map.ok = false;
      continue;
    }
    const std::string& key = pair.first.Scalar();
    if (map.find(key)) {
      file.error(sink, pair.first, fmt::format("key '{}' stands twice in {}", key, what));
      map.ok = false;
      continue;
    }
    map.entries.push_back({key, pair.first, pair.second});
  }
  return map;
}

YamlMap read_map(const YamlFile& file, const YAML::Node& node, std::string_view what,
                 std::span<const std::string_view> keys, ir::DiagnosticSink& sink) {
  YamlMap map = read_open_map(file, node, what, sink);
  std::erase_if(map.entries, [&](const YamlEntry& entry) {
    if (std::ranges::find(keys, entry.key) != keys.end()) return false;
    std::string hint = ir::did_you_mean(entry.key, keys);
    if (hint.empty()) hint = fmt::format("; valid: {}", fmt::join(keys, ", "));
    file.error(sink, entry.key_node, fmt::format("unknown key '{}' in {}{}", entry.key, what, hint));
    map.ok = false;
    return true;
  });
  return map;
}

std::optional<ScalarText> read_scalar(const YamlFile& file, const YAML::Node& node, std::string_view name,
                                      ir::DiagnosticSink& sink) {
  if (node.IsScalar()) return file.scalar(node);
  file.error(sink, node, fmt::format("{} must be a value, found {}", name, describe(node)));
  return std::nullopt;
}

bool is_list(const YamlFile& file, const YAML::Node& node, std::string_view name, ir::DiagnosticSink& sink) {
  if (node.IsSequence()) return true;
  file.error(sink, node, fmt::format("{} must be a list, found {}", name, describe(node)));
  return false;
}

std::optional<int> read_choice(const YamlFile& file, const YAML::Node& node, std::string_view name,
                               std::span<const std::string_view> choices, ir::DiagnosticSink& sink) {
  const auto scalar = read_scalar(file, node, name, sink);
  if (!scalar) return std::nullopt;
  const auto found = std::ranges::find(choices, scalar->text());
  if (found != choices.end()) return static_cast<int>(found - choices.begin());
  file.error(sink, node,
             fmt::format("{} is '{}', not one of {}{}", name, scalar->text(), fmt::join(choices, ", "),
                         ir::did_you_mean(scalar->text(), choices)));
  return std::nullopt;
}

}  // namespace fem::compiler
