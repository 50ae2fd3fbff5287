#include "compiler/planner.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "compiler/division.hpp"
#include "compiler/priced_times.hpp"
#include "compiler/programs.hpp"
#include "compiler/sizes.hpp"
#include "compiler/support.hpp"
#include "compiler/working_settings.hpp"

namespace fem::compiler {
namespace {

std::optional<int> choose_chunks(const Configuration& configuration, const Schedule& schedule,
                                 ir::DiagnosticSink& sink) {
  const std::int64_t asked = configuration.settings().schedule.chunks;
  const ChunkRange& chunks = schedule.chunks;
  if (asked == 0) return chunks.value;
  if (asked >= chunks.low && asked <= chunks.high) return static_cast<int>(asked);
  const std::string range =
      chunks.low == chunks.high ? fmt::format("{}", chunks.low) : fmt::format("{} to {}", chunks.low, chunks.high);
  configuration.error(sink, {"schedule.chunks"},
                      fmt::format("schedule.chunks={}: schedule '{}' takes {}", asked, schedule.name, range));
  return std::nullopt;
}

}  // namespace

std::optional<GivenParameters> read_parameters(const Configuration& configuration, const Schedule& schedule,
                                               ir::DiagnosticSink& sink) {
  GivenParameters given(schedule.parameters.size());
  const std::string& text = configuration.settings().schedule.params;
  std::vector<std::string_view> names;
  for (const ScheduleParameter& parameter : schedule.parameters) names.push_back(parameter.name);
  const auto fail = [&](std::string message) {
    configuration.error(sink, {"schedule.params"}, "schedule.params: " + std::move(message));
    return std::nullopt;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) return fail(fmt::format("'{}' does not read name=value", item));
    const std::string_view name = item.substr(0, equals), number = item.substr(equals + 1);
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      return fail(
          fmt::format("schedule '{}' has no parameter '{}'{}", schedule.name, name, ir::did_you_mean(name, names)));
    }
    auto& value = given[static_cast<std::size_t>(found - names.begin())];
    if (value) return fail(fmt::format("'{}' stands twice", name));
    std::int64_t parsed = 0;
    const auto [stop, fault] = std::from_chars(number.data(), number.data() + number.size(), parsed);
    if (fault != std::errc() || stop != number.data() + number.size()) {
      return fail(fmt::format("{}: '{}' is not an integer", name, number));
    }
    value = parsed;
  }
  return given;
}

std::optional<ScheduleCase> bind_schedule(const Configuration& configuration, const Schedule& schedule,
                                          ir::DiagnosticSink& sink) {
  const auto chunks = choose_chunks(configuration, schedule, sink);
  const auto given = read_parameters(configuration, schedule, sink);
  if (!chunks || !given) return std::nullopt;
  ScheduleCase sizes;
  sizes.p = static_cast<int>(configuration.settings().parallel.pp);
  sizes.m = ir::microbatches(configuration.settings());
  sizes.v = *chunks;
  std::optional<passes::HardwareProfile> profile;
  if (!load_named_profile(configuration, profile, sink)) return std::nullopt;
  const PricedTimes times = price_times(configuration.settings(), schedule.place(sizes), profile ? &*profile : nullptr);
  const auto scope = parameter_scope(schedule, sizes.p, sizes.m, sizes.v, *given, sink, times);
  if (!scope) return std::nullopt;
  sizes.parameters.assign(scope->begin() + 3, scope->end());
  return sizes;
}

ir::Plan plan_of_order(const ir::Settings& settings, const Order& order, const Placement& placement, std::int64_t m,
                       std::span<const std::int64_t> blocks) {
  ir::Plan plan;
  plan.settings = settings;
  plan.level = ir::Level::Stage;
  plan.stages = make_stages(placement, blocks);
  plan.programs.push_back(train_program(order, placement, m, settings.model.tied));
  if (!settings.data.eval.empty()) plan.programs.push_back(eval_program(placement, m));
  return plan;
}

std::optional<ir::Plan> make_plan(const Configuration& configuration, const Schedule& schedule,
                                  ir::DiagnosticSink& sink) {
  if (!check_sizes(configuration, sink) || !check_support(configuration, schedule.placement, sink)) return std::nullopt;
  const auto sizes = bind_schedule(configuration, schedule, sink);
  if (!sizes) return std::nullopt;
  const Placement placement = schedule.place(*sizes);
  const auto blocks = divide_model(configuration, placement, sink);
  if (!blocks) return std::nullopt;
  const auto order = generate_order(schedule, *sizes, sink);
  if (!order) {
    note_working_settings(configuration, schedule, *sizes, sink);
    return std::nullopt;
  }
  return plan_of_order(configuration.settings(), *order, placement, sizes->m, *blocks);
}

}  // namespace fem::compiler
