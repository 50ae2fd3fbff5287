// Where hardware profiles are looked for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/profile_reader.hpp"
#include "compiler/schedule_files.hpp"

namespace fem::compiler {

namespace fs = std::filesystem;

ProfileFolders default_profile_folders() {
  ProfileFolders folders = {FEM_SOURCE_PROFILES};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path() / "profiles");
  return folders;
}

std::vector<std::string> profile_names(const ProfileFolders& folders) {
  return schedule_names(folders);  // the files of these folders that end in .yaml
}

std::optional<passes::HardwareProfile> load_profile(const std::string& name, const ProfileFolders& folders,
                                                    const std::function<void(std::string)>& report,
                                                    ir::DiagnosticSink& sink) {
  fs::path path;
  if (name.find('/') != std::string::npos || name.ends_with(".yaml")) {
    path = name;
  } else {
    std::error_code ignored;
    for (const fs::path& folder : folders) {
      const fs::path file = folder / (name + ".yaml");
      if (path.empty() && fs::is_regular_file(file, ignored)) path = file;
    }
  }
  if (path.empty()) {
    const std::vector<std::string> names = profile_names(folders);
    const std::vector<std::string_view> views(names.begin(), names.end());
    report(fmt::format("there is no profile '{}'{}; available: {} (or a path to a .yaml file)", name,
                       ir::did_you_mean(name, views), fmt::join(names, ", ")));
    return std::nullopt;
  }
  std::string reason;
  auto text = read_text_file(path, reason);
  if (!text) {
    report(fmt::format("cannot read the profile '{}': {}", path.string(), reason));
    return std::nullopt;
  }
  return read_profile(std::make_shared<const ir::SourceText>(path.string(), std::move(*text)), sink);
}

std::optional<passes::HardwareProfile> load_profile(const std::string& name, const ProfileFolders& folders,
                                                    ir::DiagnosticSink& sink) {
  const auto report = [&sink](std::string message) { sink.error({"--profile", 0, 0}, std::move(message)); };
  return load_profile(name, folders, report, sink);
}

}  // namespace fem::compiler
