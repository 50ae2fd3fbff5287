#include "compiler/planner.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "compiler/nearest_values.hpp"
#include "compiler/programs.hpp"
#include "compiler/sizes.hpp"
#include "compiler/support.hpp"

namespace fem::compiler {
namespace {

using Given = std::vector<std::optional<std::int64_t>>;

// Reads schedule.params: a=1,b=2.
std::optional<Given> read_parameters(const Configuration& configuration, const Schedule& schedule,
                                     ir::DiagnosticSink& sink) {
  Given given(schedule.parameters.size());
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

// The nearest numbers of microbatches below and above that meet the schedule's conditions, as batch.global.
std::vector<std::int64_t> working_batches(const Configuration& configuration, const Schedule& schedule,
                                          const ScheduleCase& sizes, const Given& given) {
  constexpr std::int64_t kSearch = 4096;
  ir::DiagnosticSink scratch;
  const auto works = [&](std::int64_t m) {
    const auto scope = parameter_scope(schedule, sizes.p, m, sizes.v, given, scratch);
    if (!scope) return false;
    const ScheduleCase other{sizes.p, m, sizes.v, {scope->begin() + 3, scope->end()}};
    const auto broken = broken_requirement(schedule, other, scratch);
    return broken && !*broken;
  };
  const std::int64_t unit = configuration.settings().parallel.dp * configuration.settings().batch.micro;
  std::vector<std::int64_t> batches;
  for (std::int64_t m = sizes.m - 1; m >= 1 && m >= sizes.m - kSearch && batches.empty(); --m) {
    if (works(m)) batches.push_back(m * unit);
  }
  for (std::int64_t m = sizes.m + 1; m <= sizes.m + kSearch; ++m) {
    if (!works(m)) continue;
    batches.push_back(m * unit);
    break;
  }
  return batches;
}

// What the schedule's own condition says, and which batch would meet it.
void explain_requirement(const Configuration& configuration, const Schedule& schedule, const ScheduleCase& sizes,
                         ir::DiagnosticSink& sink) {
  ir::DiagnosticSink scratch;
  const auto broken = broken_requirement(schedule, sizes, scratch);
  const auto given = read_parameters(configuration, schedule, scratch);
  if (!broken || !*broken || !given) return;
  const auto batches = working_batches(configuration, schedule, sizes, *given);
  if (batches.empty()) return;
  sink.note({}, fmt::format("batch.global={} gives m={}{}", configuration.settings().batch.global, sizes.m,
                            nearest_text(batches)));
}

}  // namespace

std::optional<ScheduleCase> bind_schedule(const Configuration& configuration, const Schedule& schedule,
                                          ir::DiagnosticSink& sink) {
  const auto chunks = choose_chunks(configuration, schedule, sink);
  const auto given = read_parameters(configuration, schedule, sink);
  if (!chunks || !given) return std::nullopt;
  ScheduleCase sizes;
  sizes.p = static_cast<int>(configuration.settings().parallel.pp);
  sizes.m = ir::microbatches(configuration.settings());
  sizes.v = *chunks;
  const auto scope = parameter_scope(schedule, sizes.p, sizes.m, sizes.v, *given, sink);
  if (!scope) return std::nullopt;
  sizes.parameters.assign(scope->begin() + 3, scope->end());
  return sizes;
}

std::optional<ir::Plan> make_plan(const Configuration& configuration, const Schedule& schedule,
                                  ir::DiagnosticSink& sink) {
  if (!check_sizes(configuration, sink) || !check_support(configuration, schedule, sink)) return std::nullopt;
  const auto sizes = bind_schedule(configuration, schedule, sink);
  if (!sizes) return std::nullopt;
  const Placement placement = schedule.place(*sizes);
  const auto blocks = divide_layers(configuration, placement.p * placement.v, sink);
  if (!blocks) return std::nullopt;
  const auto order = generate_order(schedule, *sizes, sink);
  if (!order) {
    explain_requirement(configuration, schedule, *sizes, sink);
    return std::nullopt;
  }

  ir::Plan plan;
  plan.settings = configuration.settings();
  plan.level = ir::Level::Stage;
  plan.stages = make_stages(placement, *blocks);
  plan.programs.push_back(train_program(*order, placement, sizes->m, plan.settings.model.tied));
  if (!plan.settings.data.eval.empty()) plan.programs.push_back(eval_program(placement, sizes->m));
  return plan;
}

}  // namespace fem::compiler
