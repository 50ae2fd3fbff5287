// Searching the settings that train fastest within a memory limit: micro-batch, recompute, ZeRO, pipeline or data
// parallel ranks, schedule. Everything else stays as configured, the global batch and the number of ranks included.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/config.hpp"
#include "compiler/fit_space.hpp"
#include "compiler/schedule_files.hpp"
#include "passes/profile.hpp"
#include "passes/simulate.hpp"

namespace fem::compiler {

struct FitRequest {
  std::string memory;              // of a rank, as 80GiB; becomes memory.limit of every plan
  std::vector<std::string> fixed;  // keys that stay as configured, of fit_keys()
  std::size_t top = 10;            // how many are ranked, at least 1
  passes::HardwareProfile profile;
};

// Settings that fit: what `femc plan`, `femc memory` and `femc simulate` say of them.
struct FitRow {
  ir::Settings settings;
  FitChoice choice;
  double step_time = 0, tokens_per_second = 0;
  passes::Bubble bubble;  // of the makespan
  std::int64_t peak = 0;  // bytes of the rank that holds most, over all programs
  std::size_t heaviest = 0;
};

// Why settings are not ranked, in the order of the report.
enum class FitReason : std::uint8_t {
  Batch,     // batch.global does not divide, or other sizes do not fit one another
  Layers,    // the model has too few blocks for the stages, or a division by hand is for other stages
  Schedule,  // the schedule does not take the shape
  Support,   // this version cannot run it
  Memory,    // more than the limit
  Slower,    // slower than what is ranked
  Same,      // the same plan, or the same time and memory, as another
  Failed,    // planning or simulating failed for another reason
};
std::string_view name(FitReason reason);

struct FitMissed {
  FitReason reason;
  std::string schedule;  // of FitReason::Schedule, else ""
  std::int64_t count = 0;
  std::string nearest;  // the nearest miss, in words
};

// A peak above the limit.
struct FitPeak {
  std::int64_t bytes = 0;
  std::size_t rank = 0;
  FitChoice choice;
};

struct FitReport {
  std::vector<FitRow> ranked;  // the fastest first; of equals the one that holds less
  std::vector<FitMissed> missed;
  std::int64_t tried = 0, planned = 0, simulated = 0;
  std::optional<FitPeak> smallest;  // above the limit, where nothing fits
};

// Presumes a valid `memory`. Empty after diagnosed errors: a key that cannot be fixed, an axis that this version cannot
// run, a configured schedule that does not load. The search is exact: what is not planned holds too much by its
// parameters alone, or is slower than the last that is ranked by the work of its busiest rank alone.
std::optional<FitReport> fit(const Configuration& configuration, const ScheduleFolders& folders,
                             const FitRequest& request, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
