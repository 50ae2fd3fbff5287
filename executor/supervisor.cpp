#include "executor/supervisor.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <iostream>

#include "executor/comm/mpi_launch.hpp"
#include "executor/error.hpp"
#include "executor/run_command.hpp"
#include "executor/stop_signal.hpp"

namespace fem::exec {
namespace {

// A process group of its own: Ctrl-C in the terminal then reaches this process alone, which passes it on in its own
// way.
[[noreturn]] void become_mpirun(const std::vector<std::string>& command_line, int world_size, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExitRuntime);  // it died before the line above
  setpgid(0, 0);
  const int null = open("/dev/null", O_RDONLY);  // a background group may not read the terminal
  if (null >= 0) dup2(null, STDIN_FILENO);
  std::signal(SIGUSR1, SIG_IGN);  // inherited: until mpirun and the ranks listen to it, it does no harm
  std::vector<const char*> arguments;
  for (const std::string& argument : command_line) arguments.push_back(argument.c_str());
  try {
    launch_mpirun(static_cast<int>(arguments.size()), arguments.data(), world_size);
  } catch (const std::exception& error) {
    std::cerr << "femrun: error: " << error.what() << std::endl;
  }
  _exit(kExitRuntime);
}

int exit_code(int status) {
  if (!WIFEXITED(status)) return kExitRuntime;
  const int code = WEXITSTATUS(status);
  return code == kExitFine || code == kExitInput ? code : kExitRuntime;
}

}  // namespace

int run_under_mpirun(const std::vector<std::string>& command_line, int world_size) {
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw ExecutionError(std::string("cannot start a process for mpirun: ") + std::strerror(errno));
  if (child == 0) become_mpirun(command_line, world_size, parent);
  const std::atomic<bool>& stop = watch_stop_signals();
  constexpr int kLooksASecond = 50;
  for (int looks = 0, status = 0;; ++looks) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return exit_code(status);
    if (ended < 0) throw ExecutionError(std::string("cannot wait for mpirun: ") + std::strerror(errno));
    if (stop.load() && looks % kLooksASecond == 0) kill(child, SIGUSR1);  // again, should it have come too early
    usleep(1'000'000 / kLooksASecond);
  }
}

}  // namespace fem::exec
