#include "compiler/fit_space.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fem::compiler {
namespace {

constexpr std::array<std::string_view, 7> kKeys = {"parallel.pp",   "parallel.dp",     "batch.micro",
                                                   "schedule.name", "memory.recompute", "parallel.zero",
                                                   "parallel.reduce"};

std::vector<std::int64_t> divisors(std::int64_t of) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= of; ++d) {
    if (of % d != 0) continue;
    low.push_back(d);
    if (d * d != of) high.push_back(of / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

double doublings(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

// The configured pair, which wins where others are equal, and the usual ones.
std::vector<std::pair<std::int64_t, std::string>> shardings(const ir::Settings& settings, bool zero_fixed,
                                                            bool reduce_fixed) {
  const std::pair<std::int64_t, std::string> configured{settings.parallel.zero, settings.parallel.reduce};
  std::vector<std::pair<std::int64_t, std::string>> all = {{0, "step"}, {1, "step"},       {2, "step"},
                                                           {3, "step"}, {2, "microbatch"}, {3, "microbatch"}};
  std::erase(all, configured);
  all.insert(all.begin(), configured);
  std::erase_if(all, [&](const auto& pair) {
    return (zero_fixed && pair.first != configured.first) || (reduce_fixed && pair.second != configured.second);
  });
  return all;
}

}  // namespace

std::span<const std::string_view> fit_keys() { return kKeys; }

FitChoice fit_choice(const ir::Settings& s) {
  return {s.parallel.pp,      s.parallel.dp,   s.batch.micro,    s.schedule.name,
          s.memory.recompute, s.parallel.zero, s.parallel.reduce};
}

std::string text(const FitChoice& c) {
  return fmt::format("pp={} dp={} schedule={} micro={} recompute={} zero={} reduce={}", c.pp, c.dp, c.schedule, c.micro,
                     c.recompute, c.zero, c.reduce);
}

ir::Settings apply(const FitChoice& choice, const ir::Settings& configured) {
  ir::Settings s = configured;
  s.parallel.pp = choice.pp;
  s.parallel.dp = choice.dp;
  s.parallel.zero = choice.zero;
  s.parallel.reduce = choice.reduce;
  s.batch.micro = choice.micro;
  s.memory.recompute = choice.recompute;
  if (choice.schedule != configured.schedule.name) {
    s.schedule = {};
    s.schedule.name = choice.schedule;
  }
  return s;
}

double distance(const FitChoice& a, const FitChoice& b) {
  return doublings(a.pp, b.pp) + doublings(a.micro, b.micro) + (a.schedule != b.schedule) +
         (a.recompute != b.recompute) + (a.zero != b.zero) + (a.reduce != b.reduce);
}

std::optional<FitSpace> fit_space(const ir::Settings& configured, std::span<const std::string> fixed,
                                  const ScheduleFolders& folders, ir::DiagnosticSink& sink) {
  for (const std::string& key : fixed) {
    if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
    sink.error({"--fix", 0, 0}, fmt::format("'{}' is no key that is searched{}; keys: {}", key,
                                            ir::did_you_mean(key, kKeys), fmt::join(kKeys, ", ")));
    return std::nullopt;
  }
  const auto is_fixed = [&](std::string_view key) { return std::ranges::find(fixed, key) != fixed.end(); };
  const auto& parallel = configured.parallel;
  FitSpace space;
  const std::int64_t ranks = parallel.pp * parallel.dp;
  for (const std::int64_t pp : divisors(ranks)) {
    if (pp != parallel.pp && (is_fixed("parallel.pp") || is_fixed("parallel.dp"))) continue;
    space.splits.emplace_back(pp, ranks / pp);
  }
  space.micros = is_fixed("batch.micro") ? std::vector{configured.batch.micro} : divisors(configured.batch.global);
  space.schedules.push_back(configured.schedule.name);
  if (!is_fixed("schedule.name")) {
    for (const std::string& name : schedule_names(folders)) {
      if (name != configured.schedule.name) space.schedules.push_back(name);
    }
  }
  space.recomputes = {"none", "selective", "full", "fit"};
  if (is_fixed("memory.recompute")) space.recomputes = {configured.memory.recompute};
  space.shardings = shardings(configured, is_fixed("parallel.zero"), is_fixed("parallel.reduce"));
  return space;
}

}  // namespace fem::compiler
