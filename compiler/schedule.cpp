#include "compiler/schedule.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

namespace fem::compiler {
namespace {

// Order of enum Measure.
constexpr std::array<std::string_view, 5> kMeasures = {"peak_in_flight", "makespan", "stage_span", "makespan_bubble",
                                                       "stage_span_bubble"};

constexpr std::array<std::string_view, 4> kPriced = {"F", "I", "W", "transfer"};
constexpr std::array<PricedTime, 4> kPricedTimes = {&PricedTimes::forward, &PricedTimes::input, &PricedTimes::weight,
                                                    &PricedTimes::transfer};

// 100 million operations are 2 GB of actions.
constexpr std::int64_t kMaxOperations = 100'000'000;

bool fits(const Schedule& schedule, const ScheduleCase& sizes, ir::DiagnosticSink& sink) {
  const Placement placement = schedule.place(sizes);
  const std::int64_t kinds = schedule.split ? 3 : 2;
  const bool stages = placement.stages() <= std::numeric_limits<std::int16_t>::max();
  if (stages && sizes.m <= kMaxOperations / kinds / sizes.p / sizes.v) return true;
  sink.error(schedule.location(schedule.name_at),
             fmt::format("p={}, m={}, v={}: a plan holds at most {} operations and {} stages", sizes.p, sizes.m,
                         sizes.v, kMaxOperations, std::numeric_limits<std::int16_t>::max()));
  return false;
}

std::string values_text(const Schedule& schedule, const ScheduleCase& sizes) {
  std::string text = fmt::format("p={}, m={}, v={}", sizes.p, sizes.m, sizes.v);
  for (std::size_t i = 0; i < sizes.parameters.size(); ++i) {
    text += fmt::format(", {}={}", schedule.parameters[i].name, sizes.parameters[i]);
  }
  return text;
}

std::vector<std::int64_t> scope_of(const ScheduleCase& sizes) {
  std::vector<std::int64_t> scope = {sizes.p, sizes.m, sizes.v};
  scope.insert(scope.end(), sizes.parameters.begin(), sizes.parameters.end());
  return scope;
}

}  // namespace

std::span<const std::string_view> measure_names() { return kMeasures; }
std::string_view name(Measure measure) { return kMeasures[static_cast<std::size_t>(measure)]; }

std::span<const std::string_view> priced_names() { return kPriced; }
PricedTime priced_time(int name) { return kPricedTimes[static_cast<std::size_t>(name)]; }

std::string ScheduleParameter::default_text() const {
  if (!priced) return value.text();
  const auto found = std::ranges::find(kPricedTimes, priced);
  return fmt::format("{{priced: {}}}", kPriced[static_cast<std::size_t>(found - kPricedTimes.begin())]);
}

std::vector<std::string_view> ScheduleNames::until(std::size_t end) const {
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::optional<std::string> MessageTemplate::format(std::span<const std::int64_t> scope,
                                                   ir::DiagnosticSink& sink) const {
  std::string result = texts.front();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = values[i].evaluate(scope, sink);
    if (!value) return std::nullopt;
    result += std::to_string(*value) + texts[i + 1];
  }
  return result;
}

std::optional<std::vector<std::int64_t>> parameter_scope(const Schedule& schedule, int p, std::int64_t m, int v,
                                                         std::span<const std::optional<std::int64_t>> given,
                                                         ir::DiagnosticSink& sink, const PricedTimes& times) {
  std::vector<std::int64_t> scope = {p, m, v};
  bool own_unit = false;
  for (std::size_t i = 0; i < given.size(); ++i) own_unit |= given[i] && schedule.parameters[i].priced;
  const PricedTimes priced = own_unit ? PricedTimes{} : times;
  for (std::size_t i = 0; i < schedule.parameters.size(); ++i) {
    const ScheduleParameter& parameter = schedule.parameters[i];
    std::optional<std::int64_t> value = i < given.size() ? given[i] : std::nullopt;
    if (!value) value = parameter.priced ? priced.*parameter.priced : parameter.value.evaluate(scope, sink);
    if (!value) return std::nullopt;
    scope.push_back(*value);
  }
  return scope;
}

std::optional<const ScheduleRequire*> broken_requirement(const Schedule& schedule, const ScheduleCase& sizes,
                                                         ir::DiagnosticSink& sink) {
  const std::vector<std::int64_t> scope = scope_of(sizes);
  for (const ScheduleRequire& require : schedule.require) {
    const auto holds = require.that.evaluate(scope, sink);
    if (!holds) return std::nullopt;
    if (!*holds) return &require;
  }
  return nullptr;
}

std::optional<std::vector<std::vector<std::int64_t>>> rank_scopes(const Schedule& schedule, const ScheduleCase& sizes,
                                                                  ir::DiagnosticSink& sink) {
  std::vector<std::vector<std::int64_t>> scopes;
  const std::vector<std::int64_t> common = scope_of(sizes);
  for (int rank = 0; rank < sizes.p; ++rank) {
    std::vector<std::int64_t>& scope = scopes.emplace_back(common);
    scope.push_back(rank);
    for (const ScheduleLet& let : schedule.lets) {
      const auto value = let.value.evaluate(scope, sink);
      if (!value) return std::nullopt;
      scope.push_back(*value);
    }
  }
  return scopes;
}

std::optional<Order> generate_order(const Schedule& schedule, const ScheduleCase& sizes, ir::DiagnosticSink& sink) {
  if (!fits(schedule, sizes, sink)) return std::nullopt;
  const auto broken = broken_requirement(schedule, sizes, sink);
  if (!broken) return std::nullopt;
  if (*broken) {
    const auto message = (*broken)->message.format(scope_of(sizes), sink);
    if (message) {
      (*broken)->that.error(sink, fmt::format("schedule '{}' cannot do this: {} ({})", schedule.name, *message,
                                              values_text(schedule, sizes)));
    }
    return std::nullopt;
  }
  const Placement placement = schedule.place(sizes);
  const auto scopes = rank_scopes(schedule, sizes, sink);
  if (!scopes) return std::nullopt;
  auto order = schedule.order->generate(sizes, placement, *scopes, sink);
  if (!order) return std::nullopt;
  const bool ok = check_order(*order, placement, sizes.m, schedule.name, schedule.location(schedule.order_at), sink);
  return ok ? std::move(order) : std::nullopt;
}

}  // namespace fem::compiler
