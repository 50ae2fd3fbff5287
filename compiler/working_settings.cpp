#include "compiler/working_settings.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/nearest_values.hpp"
#include "compiler/planner.hpp"

namespace fem::compiler {
namespace {

// The nearest values below and above `now`, inside [low, high], that work.
std::vector<std::int64_t> nearest_working(std::int64_t now, std::int64_t low, std::int64_t high,
                                          const std::function<bool(std::int64_t)>& works) {
  constexpr std::int64_t kSearch = 4096;
  std::vector<std::int64_t> values;
  for (std::int64_t x = std::min(now - 1, high); x >= std::max(low, now - kSearch); --x) {
    if (!works(x)) continue;
    values.push_back(x);
    break;
  }
  for (std::int64_t x = std::max(now + 1, low); x <= std::min(high, now + kSearch); ++x) {
    if (!works(x)) continue;
    values.push_back(x);
    break;
  }
  return values;
}

class WorkingSettings {
 public:
  WorkingSettings(const Configuration& configuration, const Schedule& schedule, const ScheduleCase& sizes,
                  GivenParameters given)
      : settings_(configuration.settings()), schedule_(schedule), sizes_(sizes), given_(std::move(given)) {}

  std::string text() const {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    const std::int64_t unit = settings_.parallel.dp * settings_.batch.micro;
    auto batches = nearest_working(sizes_.m, 1, kMost / unit,
                                   [&](std::int64_t m) { return works(sizes_.p, m, sizes_.v, given_); });
    if (!batches.empty()) {
      for (std::int64_t& batch : batches) batch *= unit;
      return fmt::format("batch.global={} gives m={}{}", settings_.batch.global, sizes_.m, nearest_text(batches));
    }
    const std::vector<std::string> others = other_settings();
    if (others.empty()) return "no change of one setting alone meets the conditions";
    return fmt::format("no batch.global alone meets the conditions; nearest: {}", fmt::join(others, "; "));
  }

 private:
  // Every condition holds, and the layers suffice.
  bool works(std::int64_t p, std::int64_t m, std::int64_t v, const GivenParameters& given) const {
    ir::DiagnosticSink scratch;
    const auto scope = parameter_scope(schedule_, static_cast<int>(p), m, static_cast<int>(v), given, scratch);
    if (!scope) return false;
    const ScheduleCase other{static_cast<int>(p), m, static_cast<int>(v), {scope->begin() + 3, scope->end()}};
    const auto broken = broken_requirement(schedule_, other, scratch);
    return broken && !*broken;
  }

  std::vector<std::string> other_settings() const {
    std::vector<std::string> found;
    const auto add = [&](std::string_view setting, const std::vector<std::int64_t>& values) {
      if (!values.empty()) found.push_back(fmt::format("{}={}", setting, fmt::join(values, " or ")));
    };
    // A division by hand is written for one number of stages.
    if (settings_.parallel.layers_per_stage.empty()) {
      const std::int64_t layers = settings_.model.layers;
      add("parallel.pp", nearest_working(sizes_.p, 1, layers / sizes_.v, [&](std::int64_t p) {
            return works(p, sizes_.m, sizes_.v, given_);
          }));
      const std::int64_t most = std::min<std::int64_t>(schedule_.chunks.high, layers / sizes_.p);
      add("schedule.chunks", nearest_working(sizes_.v, schedule_.chunks.low, most, [&](std::int64_t v) {
            return works(sizes_.p, sizes_.m, v, given_);
          }));
    }
    for (std::size_t i = 0; i < given_.size(); ++i) {
      GivenParameters other = given_;
      const auto values = nearest_working(sizes_.parameters[i], kNoLow, kNoHigh, [&](std::int64_t x) {
        other[i] = x;
        return works(sizes_.p, sizes_.m, sizes_.v, other);
      });
      add(fmt::format("schedule.params {}", schedule_.parameters[i].name), values);
    }
    return found;
  }

  // Half of the range, so that a distance can be added.
  static constexpr std::int64_t kNoHigh = std::numeric_limits<std::int64_t>::max() / 2;
  static constexpr std::int64_t kNoLow = -kNoHigh;

  const ir::Settings& settings_;
  const Schedule& schedule_;
  const ScheduleCase& sizes_;
  GivenParameters given_;
};

}  // namespace

void note_working_settings(const Configuration& configuration, const Schedule& schedule, const ScheduleCase& sizes,
                           ir::DiagnosticSink& sink) {
  ir::DiagnosticSink scratch;
  const auto broken = broken_requirement(schedule, sizes, scratch);
  auto given = read_parameters(configuration, schedule, scratch);
  if (!broken || !*broken || !given) return;
  sink.note({}, WorkingSettings(configuration, schedule, sizes, std::move(*given)).text());
}

}  // namespace fem::compiler
