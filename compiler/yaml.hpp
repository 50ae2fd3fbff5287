// Reading YAML strictly: positions of every node, no unknown and no doubled key.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "compiler/scalar_text.hpp"

namespace fem::compiler {

class YamlFile {
 public:
  // Empty (with a diagnosed error) where the text is not YAML.
  static std::optional<YamlFile> parse(SourcePtr source, ir::DiagnosticSink& sink);

  const YAML::Node& root() const { return root_; }
  const SourcePtr& source() const { return source_; }
  Position position(const YAML::Node& node) const;
  ScalarText scalar(const YAML::Node& node) const;
  void error(ir::DiagnosticSink& sink, const YAML::Node& node, std::string message) const;

 private:
  YamlFile(SourcePtr source, YAML::Node root) : source_(std::move(source)), root_(std::move(root)) {}
  SourcePtr source_;
  YAML::Node root_;
};

// "a list", "a map", "a value", "nothing": what stands there, for messages.
std::string_view describe(const YAML::Node& node);

struct YamlEntry {
  std::string key;
  YAML::Node key_node, value;
};

// The entries of a map in file order. `what` names the map in messages ("a phase", "section model"). Something else
// than a map, a key that is not among `keys` and a doubled key are errors; all of them are reported, and the entries
// that are right are returned with `ok` false.
struct YamlMap {
  std::vector<YamlEntry> entries;
  bool ok = true;
  const YAML::Node* find(std::string_view key) const;  // nullptr: not there
};
YamlMap read_map(const YamlFile& file, const YAML::Node& node, std::string_view what,
                 std::span<const std::string_view> keys, ir::DiagnosticSink& sink);
// The same where any key may stand.
YamlMap read_open_map(const YamlFile& file, const YAML::Node& node, std::string_view what, ir::DiagnosticSink& sink);

// The scalar's text; anything else is an error "NAME must be a value, found a list".
std::optional<ScalarText> read_scalar(const YamlFile& file, const YAML::Node& node, std::string_view name,
                                      ir::DiagnosticSink& sink);

// True for a list; anything else is an error.
bool is_list(const YamlFile& file, const YAML::Node& node, std::string_view name, ir::DiagnosticSink& sink);

// The index of the word among `choices`, or an error with the nearest one.
std::optional<int> read_choice(const YamlFile& file, const YAML::Node& node, std::string_view name,
                               std::span<const std::string_view> choices, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
