// What the command `femrun` does, apart from reading its command line.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace fem::exec {

// Exit codes of the binaries.
inline constexpr int kExitFine = 0, kExitInput = 1, kExitUsage = 2, kExitRuntime = 3;

struct RunCommand {
  std::filesystem::path plan;
  std::string backend;                 // empty: the launcher's (local without one)
  std::string device = "cpu";          // cpu, cuda or meta: a dry run
  std::optional<int> rank;             // of a dry run: this pipeline rank alone
  std::vector<std::string> overrides;  // "section.key=value", in order
  std::filesystem::path init, resume, save, metrics, memory, trace, dump_batches;
  std::string lanes = "threads";       // or inline
  bool poison = false;                 // fill released parameters with NaN
  std::chrono::milliseconds timeout{60'000};
  std::vector<std::string> command_line;  // of this process, program first: what mpirun is to start
  const std::atomic<bool>* stop = nullptr;
};

// Parses and verifies the plan before anything else, then joins the ranks and trains; on device meta it prints what
// each rank would hold instead. Returns the exit code; every failure is one message on `err`.
int run_command(const RunCommand& command, std::ostream& out, std::ostream& err);

}  // namespace fem::exec
