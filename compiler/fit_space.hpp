// The settings that `femc fit` tries.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/config.hpp"
#include "compiler/schedule_files.hpp"

namespace fem::compiler {

// One value of each axis.
struct FitChoice {
  std::int64_t pp = 1, dp = 1, micro = 1;
  std::string schedule, recompute;
  std::int64_t zero = 0;
  std::string reduce;
  friend bool operator==(const FitChoice&, const FitChoice&) = default;
};
FitChoice fit_choice(const ir::Settings& settings);
std::string text(const FitChoice& choice);  // "pp=4 dp=2 schedule=1f1b micro=1 recompute=none zero=0 reduce=step"

// The settings of a choice. A schedule other than the configured one has its default chunks and parameters.
ir::Settings apply(const FitChoice& choice, const ir::Settings& configured);

// How far a choice is from the configured one: doublings of the ranks of a pipeline and of the micro-batch, and other
// changed keys.
double distance(const FitChoice& a, const FitChoice& b);

// Keys that can be told to stay as configured. parallel.pp and parallel.dp are one axis.
std::span<const std::string_view> fit_keys();

struct FitSpace {
  std::vector<std::pair<std::int64_t, std::int64_t>> splits;  // pp and dp, with the configured product
  std::vector<std::int64_t> micros;                           // divisors of batch.global
  std::vector<std::string> schedules;                         // the configured one first, then by name
  std::vector<std::string> recomputes;                        // as little recomputing as possible first
  // parallel.zero and parallel.reduce, the configured pair first.
  std::vector<std::pair<std::int64_t, std::string>> shardings;
};

// `fixed` holds keys. Empty after an error at --fix that names the nearest key.
std::optional<FitSpace> fit_space(const ir::Settings& configured, std::span<const std::string> fixed,
                                  const ScheduleFolders& folders, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
