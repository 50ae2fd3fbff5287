// The subcommands of femc as functions: results on `out`, diagnostics on `err`, the exit code returned.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule_files.hpp"
#include "compiler/schedule_lint.hpp"

namespace fem::compiler {

enum ExitCode : int { kSuccess = 0, kDiagnosed = 1, kUsage = 2, kRuntime = 3 };

struct Streams {
  std::ostream& out;
  std::ostream& err;
};

// femc plan CONFIG [-o FILE] [--set key=value]... [--passes TEXT] [--disable-pass NAME]... [--print-after PASS|all]
// [--print-changed] [--time-passes] [--reproducer FILE]
struct PlanArguments {
  std::string config;
  std::optional<std::string> output;       // none: the plan goes to `out`
  std::vector<std::string> set;            // "section.key=value"
  std::optional<std::string> passes;       // the pipeline; none: passes::default_pipeline()
  std::optional<std::string> print_after;  // the plan after that pass goes to `err`; "all": after each
  bool print_changed = false;              // what each pass changed goes to `err`
  std::vector<std::string> disable;        // optimisations to leave out
  bool time_passes = false;                // a table of run and verification times goes to `err`
  // Where the input of a failing pass and the rest of the pipeline go; none: femc-reproducer.txt beside the output.
  std::optional<std::string> reproducer;
};
int plan_command(const PlanArguments& arguments, const ScheduleFolders& folders, Streams streams);

// femc replay FILE: runs what a reproducer holds; the same errors and exit code as the failure, or success.
int replay_command(const std::string& file, Streams streams);

// femc show PLAN [--rank R]: the layout, and the actions of all ranks or of one.
struct ShowArguments {
  std::string plan;
  std::optional<int> rank;
};
int show_command(const ShowArguments& arguments, Streams streams);

// femc check PLAN: parses and verifies; one line says what the plan holds.
int check_command(const std::string& plan, Streams streams);

// femc lint FILE...: schedule files alone, over a grid of sizes. kDiagnosed where one has a fault.
struct LintArguments {
  std::vector<std::string> files;  // names or paths, as schedule.name
  LintGrid grid;
};
int lint_command(const LintArguments& arguments, const ScheduleFolders& folders, Streams streams);

// femc simulate PLAN: time, throughput, memory and traffic of a program on a machine.
struct SimulateArguments {
  std::string plan;
  std::string program = "train";
  std::string profile = "laptop_cpu";  // a name of compiler/profiles/, or a path
  bool asynchronous = false;           // communication holds up no rank
  bool json = false;
};
int simulate_command(const SimulateArguments& arguments, Streams streams);

// femc memory PLAN: what each rank holds at its peak, by kind; with `rank` also the blocks that are alive there.
struct MemoryArguments {
  std::string plan;
  std::string program = "train";
  std::optional<int> rank;
  bool json = false;
};
int memory_command(const MemoryArguments& arguments, Streams streams);

// femc fit CONFIG --memory 80GiB: the settings that train fastest within a memory limit. kDiagnosed where nothing fits.
struct FitArguments {
  std::string config;
  std::optional<std::string> memory;   // of a rank; none: memory.limit, else what the profile's machine has
  std::string profile = "laptop_cpu";  // a name of compiler/profiles/, or a path
  std::vector<std::string> set;        // "section.key=value"
  std::vector<std::string> fix;        // "key,key" that stay as configured
  std::size_t top = 10;
  bool json = false;
  std::optional<std::string> output;   // configuration to write: that of the first
};
int fit_command(const FitArguments& arguments, const ScheduleFolders& folders, Streams streams);

// femc timeline PLAN: a Gantt chart, one line a rank, with the bubble by both definitions.
struct TimelineArguments {
  std::string plan;
  std::string program = "train";
  int forward = 1, input = 1, weight = 1;  // costs F, I, W; a whole backward takes I + W
  bool rendezvous = false;                 // sends and receives hold up their rank until both sides have come
  int width = 120;                         // columns
  std::optional<std::string> profile;      // prices actions in seconds, in place of the costs above
  std::optional<std::string> html, trace;  // files to write besides
};
int timeline_command(const TimelineArguments& arguments, Streams streams);

// femc import FILE.csv --format torch: a schedule file of torch.distributed.pipelining, checked alone or made a plan.
struct ImportArguments {
  std::string file;
  std::optional<std::string> config;  // the model and the sizes; needed unless `check`
  std::vector<std::string> set;       // "section.key=value"
  std::optional<std::string> output;  // none: the plan goes to `out`
  bool check = false;                 // the file alone
  bool keep_communication = false;    // the file's sends and receives in place of our own
};
int import_command(const ImportArguments& arguments, Streams streams);

// femc export PLAN --format torch
struct ExportArguments {
  std::string plan;
  std::optional<std::string> output;  // none: the file goes to `out`
  bool compute_only = false;
};
int export_command(const ExportArguments& arguments, Streams streams);

// femc diff A B: what differs between two plans. kSuccess, also where they differ, unless `exit_code`.
struct DiffArguments {
  std::string a, b;
  std::optional<int> rank;
  bool table = false, all = false;
  bool exit_code = false;  // kDiagnosed where they differ
};
int diff_command(const DiffArguments& arguments, Streams streams);

// femc list schedules|actions|passes
int list_command(const std::string& what, const ScheduleFolders& folders, Streams streams);

// femc explain CODE: the paragraph about an invariant of the verifier.
int explain_command(const std::string& code, Streams streams);

// femc docs DIR: writes the generated reference pages.
int docs_command(const std::string& folder, const ScheduleFolders& folders, Streams streams);

}  // namespace fem::compiler
