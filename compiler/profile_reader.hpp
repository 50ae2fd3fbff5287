// Hardware profiles: YAML files that say what a machine can do. See docs/simulation.md for their keys.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/scalar_text.hpp"
#include "passes/profile.hpp"

namespace fem::compiler {

// Strict: an unknown, doubled or missing key and a value out of its range are errors at their position.
std::optional<passes::HardwareProfile> read_profile(const SourcePtr& source, ir::DiagnosticSink& sink);

// Folders in order of preference: compiler/profiles of the source tree that the build came from, then profiles/ beside
// the running program.
using ProfileFolders = std::vector<std::filesystem::path>;
ProfileFolders default_profile_folders();

// Names (without .yaml) in all folders, sorted.
std::vector<std::string> profile_names(const ProfileFolders& folders);

// The profile that is meant where none is named.
inline constexpr std::string_view kDefaultProfile = "laptop-cpu";

// A name that contains '/' or ends in .yaml is a path, any other a file of the folders. `report` receives the reason
// why no file was found or read, with the nearest name and those that exist.
std::optional<passes::HardwareProfile> load_profile(const std::string& name, const ProfileFolders& folders,
                                                    const std::function<void(std::string)>& report,
                                                    ir::DiagnosticSink& sink);

// The same for the argument of --profile, where such an error is reported.
std::optional<passes::HardwareProfile> load_profile(const std::string& name, const ProfileFolders& folders,
                                                    ir::DiagnosticSink& sink);

}  // namespace fem::compiler
