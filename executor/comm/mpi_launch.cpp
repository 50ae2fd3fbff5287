#include "executor/comm/mpi_launch.hpp"

#include <mpi.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

// Set for the ranks that launch_mpirun starts, so that a rank which mpirun did not make one does not start mpirun
// again.
constexpr const char* kGuard = "FEMTOTRON_STARTED_MPIRUN";

std::string find_mpirun() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/mpirun";
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  throw ExecutionError("no mpirun in PATH: install it (Debian: openmpi-bin), or use --backend local");
}

bool is_open_mpi() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  return std::string_view(version, static_cast<std::size_t>(length)).find("Open MPI") != std::string_view::npos;
}

}  // namespace

std::vector<std::string> mpirun_command(const std::string& mpirun, int world_size,
                                        std::span<const std::string> command, MpirunOptions options) {
  std::vector<std::string> all{mpirun};
  const auto add = [&all](std::initializer_list<const char*> words) {
    all.insert(all.end(), words.begin(), words.end());
  };
  if (options.open_mpi) {
    if (options.as_root) add({"--allow-run-as-root"});
    add({"--oversubscribe"});   // more ranks than cores is a choice, not a mistake
    add({"--bind-to", "none"});  // a rank has a thread per lane
    // After a failure mpirun asks the ranks to end and waits so long, in seconds, before it kills them: time for a
    // message.
    add({"--mca", "odls_base_sigkill_timeout", "2"});
  }
  add({"-n"});
  all.push_back(std::to_string(world_size));
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

void launch_mpirun(int argc, const char* const* argv, int world_size) {
  if (std::getenv(kGuard))
    throw ExecutionError("mpirun started this process, but gave it no rank: OMPI_COMM_WORLD_RANK and PMI_RANK are not "
                         "set");
  const std::string mpirun = find_mpirun();
  std::vector<std::string> command;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  command.push_back(error ? argv[0] : program.string());
  for (int i = 1; i < argc; ++i) command.emplace_back(argv[i]);

  std::vector<std::string> words =
      mpirun_command(mpirun, world_size, command, {.as_root = geteuid() == 0, .open_mpi = is_open_mpi()});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  setenv(kGuard, "1", 1);
  execv(mpirun.c_str(), pointers.data());
  throw ExecutionError("cannot start " + mpirun + ": " + std::strerror(errno));
}

}  // namespace fem::exec
