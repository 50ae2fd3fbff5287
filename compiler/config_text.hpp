// Settings as the text of a configuration file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/settings.hpp"

namespace fem::compiler {

// YAML that read_configuration reads back to the same settings: sections and keys in the order of ir/settings.def,
// required settings, those that differ from their defaults, and the keys "section.key" of `besides`.
std::string configuration_text(const ir::Settings& settings, std::span<const std::string_view> besides = {});

}  // namespace fem::compiler
