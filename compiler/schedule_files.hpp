// Where schedule files are looked for.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/schedule.hpp"

namespace fem::compiler {

// Folders in order of preference.
using ScheduleFolders = std::vector<std::filesystem::path>;

// schedules/ of the source tree that the build came from, then schedules/ beside the running program.
ScheduleFolders default_schedule_folders();

// Names (without .yaml) in all folders, sorted; a name in several folders counts once.
std::vector<std::string> schedule_names(const ScheduleFolders& folders);

// The whole text of a file; empty with the system's reason in `error` where it cannot be read.
std::optional<std::string> read_text_file(const std::filesystem::path& path, std::string& error);

// A name that contains '/' or ends in .yaml is a path, relative to the working folder; any other is a file of the
// folders. `report` receives the reason why no file was found or read, with the nearest name and those that exist.
std::optional<Schedule> load_schedule(const std::string& name, const ScheduleFolders& folders,
                                      const std::function<void(std::string)>& report, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
