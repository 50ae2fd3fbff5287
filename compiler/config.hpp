// A run's configuration: one YAML file whose sections and keys are the rows of ir/settings.def, and --set overrides.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/scalar_text.hpp"
#include "ir/diagnostics.hpp"
#include "ir/settings.hpp"

namespace fem::compiler {

// Settings, and where each of them was written.
class Configuration {
 public:
  const ir::Settings& settings() const { return settings_; }

  // The same places with other values, for a search over settings.
  Configuration with(const ir::Settings& settings) const {
    Configuration other = *this;
    other.settings_ = settings;
    return other;
  }

  // Reports at the first of `keys` ("batch.global") that was written somewhere; at the file as a whole if none was.
  void error(ir::DiagnosticSink& sink, std::initializer_list<std::string_view> keys, std::string message) const;

 private:
  friend class ConfigurationReader;
  struct Place {
    SourcePtr source;  // null: the default holds
    Position at;
  };
  SourcePtr file_;
  ir::Settings settings_;
  std::vector<Place> places_;  // by row of ir::setting_table()
};

// Reads the file, applies "section.key=value" overrides in order (diagnosed as the pseudo-file "--set"), and checks
// that required settings are there. Sizes are not checked: see check_sizes(). Empty after diagnosed errors.
std::optional<Configuration> read_configuration(SourcePtr file, std::span<const std::string> overrides,
                                                ir::DiagnosticSink& sink);

// "section.key" of settings without a natural default.
std::span<const std::string_view> required_settings();

}  // namespace fem::compiler
