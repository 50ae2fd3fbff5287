#include "compiler/fit_layouts.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "compiler/division.hpp"
#include "compiler/planner.hpp"
#include "compiler/sizes.hpp"

namespace fem::compiler {
namespace {

std::string first_message(const ir::DiagnosticSink& sink) {
  return sink.all().empty() ? "no reason was given" : sink.all().front().message;
}

// Empty where every condition of the schedule holds.
std::string broken_condition(const Schedule& schedule, const ScheduleCase& sizes) {
  ir::DiagnosticSink sink;
  const auto broken = broken_requirement(schedule, sizes, sink);
  if (!broken) return first_message(sink);
  if (!*broken) return {};
  std::vector<std::int64_t> scope = {sizes.p, sizes.m, sizes.v};
  scope.insert(scope.end(), sizes.parameters.begin(), sizes.parameters.end());
  const auto message = (*broken)->message.format(scope, sink);
  return message ? *message : first_message(sink);
}

}  // namespace

void FitMisses::add(FitReason reason, const std::string& schedule, std::int64_t count, double distance,
                    std::string text) {
  const auto [found, is_new] =
      entries_.try_emplace({reason, schedule}, Entry{{reason, schedule, 0, text}, distance});
  Entry& entry = found->second;
  entry.missed.count += count;
  if (is_new || distance >= entry.distance) return;
  entry.distance = distance;
  entry.missed.nearest = std::move(text);
}

std::vector<FitMissed> FitMisses::report() const {
  std::vector<FitMissed> all;
  for (const auto& [key, entry] : entries_) all.push_back(entry.missed);
  return all;
}

std::int64_t FitLayouts::per_layout() const {
  return static_cast<std::int64_t>(space_.shardings.size() * space_.recomputes.size());
}

bool FitLayouts::load(ir::DiagnosticSink& sink) {
  const std::string& configured = configuration_.settings().schedule.name;
  for (const std::string& name : space_.schedules) {
    ir::DiagnosticSink own;
    const auto report = [&](std::string message) {
      configuration_.error(name == configured ? sink : own, {"schedule.name"}, std::move(message));
    };
    auto schedule = load_schedule(name, folders_, report, name == configured ? sink : own);
    if (schedule) {
      schedules_.push_back(std::make_shared<const Schedule>(std::move(*schedule)));
    } else if (name == configured) {
      return false;
    } else {
      const auto shapes = static_cast<std::int64_t>(space_.splits.size() * space_.micros.size());
      misses_.add(FitReason::Schedule, name, shapes * per_layout(), 0, first_message(own));
      schedules_.push_back(nullptr);
    }
  }
  return true;
}

bool FitLayouts::find(ir::DiagnosticSink& sink) {
  if (!load(sink)) return false;
  const FitChoice configured = fit_choice(configuration_.settings());
  for (const auto& [pp, dp] : space_.splits) {
    for (const std::int64_t micro : space_.micros) {
      FitChoice choice = configured;
      choice.pp = pp;
      choice.dp = dp;
      choice.micro = micro;
      ir::DiagnosticSink own;
      const bool fits = check_sizes(configuration_.with(apply(choice, configuration_.settings())), own);
      for (std::size_t i = 0; i < schedules_.size(); ++i) {
        if (!schedules_[i]) continue;
        choice.schedule = space_.schedules[i];
        if (fits) {
          add(configuration_.with(apply(choice, configuration_.settings())), choice, schedules_[i]);
        } else {
          misses_.add(FitReason::Batch, "", per_layout(), distance(choice, configured), first_message(own));
        }
      }
    }
  }
  return true;
}

void FitLayouts::add(const Configuration& configuration, const FitChoice& choice,
                     const std::shared_ptr<const Schedule>& schedule) {
  ir::DiagnosticSink own;
  const double far = distance(choice, fit_choice(configuration_.settings()));
  const auto miss = [&](FitReason reason, const std::string& why) {
    misses_.add(reason, reason == FitReason::Schedule ? choice.schedule : "", per_layout(), far,
                fmt::format("{} (pp={} dp={} micro={})", why, choice.pp, choice.dp, choice.micro));
  };
  const auto sizes = bind_schedule(configuration, *schedule, own);
  if (!sizes) return miss(FitReason::Schedule, first_message(own));
  const std::string broken = broken_condition(*schedule, *sizes);
  if (!broken.empty()) return miss(FitReason::Schedule, broken);
  const Placement placement = schedule->place(*sizes);
  auto blocks = divide_model(configuration, placement, own);
  if (!blocks) return miss(FitReason::Layers, first_message(own));
  FitLayout& layout = layouts_.emplace_back();
  layout.choice = choice;
  layout.schedule = schedule;
  layout.sizes = *sizes;
  layout.blocks = std::move(*blocks);
  layout.placement = placement;
}

void FitLayouts::plan(FitLayout& layout) {
  if (layout.state != FitLayout::State::Unplanned) return;
  ir::DiagnosticSink own;
  const auto order = generate_order(*layout.schedule, layout.sizes, own);
  if (!order) {
    layout.state = FitLayout::State::Failed;
    layout.reason = first_message(own);
    return;
  }
  layout.plan = plan_of_order(apply(layout.choice, configuration_.settings()), *order, layout.placement,
                              layout.sizes.m, layout.blocks);
  layout.state = FitLayout::State::Planned;
  for (const FitLayout& other : layouts_) {
    if (&other == &layout || other.state != FitLayout::State::Planned) continue;
    const bool same_shape = other.choice.pp == layout.choice.pp && other.choice.micro == layout.choice.micro;
    if (!same_shape || other.plan.stages != layout.plan.stages || other.plan.programs != layout.plan.programs) continue;
    layout.state = FitLayout::State::Twin;
    layout.reason = other.choice.schedule;
    layout.plan = {};
    return;
  }
}

}  // namespace fem::compiler
