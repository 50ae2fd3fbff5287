// What a run is told beside its plan, and which of the plan's settings it may change.
#pragma once

#include <atomic>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>

#include "executor/comm/communicator.hpp"
#include "executor/lanes/lane_mode.hpp"
#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// Empty paths: not wanted.
struct RunOptions {
  std::filesystem::path init, resume;  // folders to start or to go on from; at most one of them
  std::filesystem::path save;          // folder for the checkpoint at the end or at a stop
  std::filesystem::path metrics;       // JSON lines; continued when resuming, otherwise written anew
  std::filesystem::path memory;        // what each rank's memory came to, as JSON
  std::filesystem::path trace;         // when each action of the last step ran
  LaneMode lanes = LaneMode::Threads;  // of a plan of level lane
  bool poison = false;                 // fill released parameters with NaN, so that a use after the release shows
  std::string backend = "local";       // for the header
  std::ostream* out = nullptr;         // header, progress and evaluation lines of rank 0; null: none
  const std::atomic<bool>* stop = nullptr;  // set by a signal handler; all ranks stop at one agreed step
};

// Applies "section.key=value" to a plan's settings. Reports and returns false where the text is malformed, the key
// unknown (with the nearest one), the value wrong, or the setting part of the plan: that takes femc.
bool override_setting(ir::Settings& settings, std::string_view assignment, ir::DiagnosticSink& sink);

// Reports values of run settings that no run can have: steps below 0, intervals below 1, and so on.
bool check_run_settings(const ir::Settings& settings, ir::DiagnosticSink& sink);

}  // namespace fem::exec
