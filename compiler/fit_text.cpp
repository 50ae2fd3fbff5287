#include "compiler/fit_text.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "compiler/forecast.hpp"
#include "ir/bytes.hpp"

namespace fem::compiler {
namespace {

using Json = nlohmann::ordered_json;

std::string_view explain(FitReason reason) {
  switch (reason) {
    case FitReason::Batch: return "sizes that do not divide";
    case FitReason::Layers: return "too few or too many stages";
    case FitReason::Schedule: return "refused by schedule";
    case FitReason::Support: return "not supported";
    case FitReason::Memory: return "too much memory";
    case FitReason::Slower: return "slower than the last above";
    case FitReason::Same: return "the same as another";
    case FitReason::Failed: return "not planned";
  }
  return "";
}

std::string rate(double tokens_per_second) {
  return tokens_per_second >= 1000 ? fmt::format("{:.0f}", tokens_per_second)
                                   : fmt::format("{:.4g}", tokens_per_second);
}

std::string table(const FitReport& report) {
  std::size_t name = std::string_view("schedule").size();
  for (const FitRow& row : report.ranked) name = std::max(name, row.choice.schedule.size());
  std::string text =
      fmt::format("{:>3} {:>10} {:>10} {:>9} {:>7} {:>7} {:>4} {:>5}  {:<{}} {:>5}  {:<9} {:>4}  {}\n", "#", "tokens/s",
                  "step time", "peak", "at rank", "bubble", "pp", "dp", "schedule", name, "micro", "recompute", "zero",
                  "reduce");
  for (std::size_t i = 0; i < report.ranked.size(); ++i) {
    const FitRow& row = report.ranked[i];
    const FitChoice& c = row.choice;
    text += fmt::format("{:>3} {:>10} {:>10} {:>9} {:>7} {:>6.2f}% {:>4} {:>5}  {:<{}} {:>5}  {:<9} {:>4}  {}\n",
                        i + 1, rate(row.tokens_per_second), seconds_text(row.step_time), ir::bytes_text(row.peak),
                        row.heaviest, 100 * row.bubble.over_total, c.pp, c.dp, c.schedule, name, c.micro, c.recompute,
                        c.zero, c.reduce);
  }
  return text;
}

}  // namespace

std::string fit_text(const FitReport& report, const FitRequest& request, const Configuration& configuration) {
  const ir::Settings& s = configuration.settings();
  std::string text = fmt::format(
      "on {}, {} ranks with at most {} each: {} sequences of {} tokens a step\n"
      "tried {} settings, made {} plans, simulated {}\n",
      request.profile.name, s.parallel.pp * s.parallel.dp, request.memory, s.batch.global, s.batch.seq_len,
      report.tried, report.planned, report.simulated);
  if (!report.ranked.empty()) text += "bubble: of the makespan, over total time\n" + table(report);
  if (!report.missed.empty()) text += "left out, with the nearest miss\n";
  for (const FitMissed& missed : report.missed) {
    const std::string why = missed.schedule.empty() ? std::string(explain(missed.reason))
                                                    : fmt::format("{} {}", explain(missed.reason), missed.schedule);
    text += fmt::format("  {:>6} {}: {}\n", missed.count, why, missed.nearest);
  }
  return text;
}

std::string fit_json(const FitReport& report, const FitRequest& request, const Configuration& configuration) {
  const ir::Settings& s = configuration.settings();
  Json ranked = Json::array(), missed = Json::array();
  for (const FitRow& row : report.ranked) {
    ranked.push_back({{"tokens_per_second", row.tokens_per_second},
                      {"step_seconds", row.step_time},
                      {"peak_bytes", row.peak},
                      {"peak_rank", row.heaviest},
                      {"makespan_bubble_over_total", row.bubble.over_total},
                      {"pp", row.choice.pp},
                      {"dp", row.choice.dp},
                      {"schedule", row.choice.schedule},
                      {"micro", row.choice.micro},
                      {"recompute", row.choice.recompute},
                      {"zero", row.choice.zero},
                      {"reduce", row.choice.reduce}});
  }
  for (const FitMissed& miss : report.missed) {
    missed.push_back({{"reason", name(miss.reason)}, {"schedule", miss.schedule}, {"count", miss.count},
                      {"nearest", miss.nearest}});
  }
  const Json json = {{"profile", request.profile.name},
                     {"memory_bytes", *ir::parse_bytes(request.memory)},
                     {"ranks", s.parallel.pp * s.parallel.dp},
                     {"tokens", s.batch.global * s.batch.seq_len},
                     {"tried", report.tried},
                     {"planned", report.planned},
                     {"simulated", report.simulated},
                     {"ranked", ranked},
                     {"missed", missed}};
  return json.dump(2) + "\n";
}

std::string nothing_fits(const FitReport& report, const FitRequest& request) {
  if (!report.smallest) return "none of the settings can be planned";
  const FitPeak& peak = *report.smallest;
  return fmt::format("nothing fits into {}: the smallest peak found is {}, {} more, on rank {} with {}", request.memory,
                     ir::bytes_text(peak.bytes), ir::bytes_text(peak.bytes - *ir::parse_bytes(request.memory)),
                     peak.rank, text(peak.choice));
}

}  // namespace fem::compiler
