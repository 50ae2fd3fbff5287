#include "compiler/schedule_files.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fem::compiler {
namespace {

namespace fs = std::filesystem;

bool is_path(const std::string& name) { return name.find('/') != std::string::npos || name.ends_with(".yaml"); }

std::optional<fs::path> find_file(const std::string& name, const ScheduleFolders& folders) {
  if (is_path(name)) return fs::path(name);
  std::error_code ignored;
  for (const fs::path& folder : folders) {
    fs::path file = folder / (name + ".yaml");
    if (fs::is_regular_file(file, ignored)) return file;
  }
  return std::nullopt;
}

}  // namespace

ScheduleFolders default_schedule_folders() {
  ScheduleFolders folders = {FEM_SOURCE_SCHEDULES};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path() / "schedules");
  return folders;
}

std::vector<std::string> schedule_names(const ScheduleFolders& folders) {
  std::set<std::string> names;
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

std::optional<std::string> read_text_file(const fs::path& path, std::string& error) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    error = "it is a folder";
    return std::nullopt;
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream || stream.bad()) {
    error = std::strerror(errno ? errno : EIO);
    return std::nullopt;
  }
  return std::move(text).str();
}

std::optional<Schedule> load_schedule(const std::string& name, const ScheduleFolders& folders,
                                      const std::function<void(std::string)>& report, ir::DiagnosticSink& sink) {
  const auto path = find_file(name, folders);
  if (!path) {
    const std::vector<std::string> names = schedule_names(folders);
    const std::vector<std::string_view> views(names.begin(), names.end());
    report(fmt::format("there is no schedule '{}'{}; available: {} (or a path to a .yaml file)", name,
                       ir::did_you_mean(name, views), fmt::join(names, ", ")));
    return std::nullopt;
  }
  std::string reason;
  auto text = read_text_file(*path, reason);
  if (!text) {
    report(fmt::format("cannot read the schedule file '{}': {}", path->string(), reason));
    return std::nullopt;
  }
  return read_schedule(std::make_shared<const ir::SourceText>(path->string(), std::move(*text)), sink);
}

}  // namespace fem::compiler
