#include "compiler/fit.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <tuple>

#include <fmt/format.h>

#include "compiler/fit_bounds.hpp"
#include "compiler/fit_layouts.hpp"
#include "compiler/programs.hpp"
#include "compiler/sizes.hpp"
#include "compiler/support.hpp"
#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/verify.hpp"
#include "passes/manager.hpp"
#include "passes/throughput.hpp"

namespace fem::compiler {
namespace {

// One choice, and what is known of it without its plan.
struct Candidate {
  std::size_t layout = 0, order = 0;
  FitChoice choice;
  double bound = 0;         // seconds of a step, at least
  std::int64_t state = 0;   // bytes of the heaviest rank, at least
};

// Recompute `fit` may choose every block, whatever the configuration says of the other modes.
constexpr std::string_view kEverything = "everything";
void recompute_all_blocks(ir::Settings& settings) {
  const ir::Settings defaults;
  settings.memory.recompute_every = defaults.memory.recompute_every;
  settings.memory.recompute_first = defaults.memory.recompute_first;
  settings.memory.recompute_last = defaults.memory.recompute_last;
}

constexpr double kFarther = 1e30;  // than every miss by a peak that is known

struct Held {
  std::int64_t bytes = 0;
  std::size_t rank = 0;
};

class FitSearch {
 public:
  FitSearch(const Configuration& configuration, const FitSpace& space, const ScheduleFolders& folders,
            const FitRequest& request)
      : settings_(configuration.settings()),
        configuration_(configuration),
        space_(space),
        request_(request),
        limit_(*ir::parse_bytes(request.memory)),
        layouts_(configuration, space, folders, misses_) {
    settings_.memory.limit = request.memory;
    ir::Settings all = settings_;
    recompute_all_blocks(all);
    if (all != settings_) least_ = kEverything;
    ir::DiagnosticSink own;
    const auto pipeline = passes::parse_pipeline(ir::SourceText("passes", passes::default_pipeline(all)), own);
    on_lanes_ = pipeline && !pipeline->calls.empty() && pipeline->calls.back().pass->out == ir::Level::Lane;
    apart_ = on_lanes_ || ir::offloads_optimizer(settings_);
  }

  std::optional<FitReport> run(ir::DiagnosticSink& sink) {
    if (!layouts_.find(sink)) return std::nullopt;
    for (std::size_t i = 0; i < layouts_.all().size(); ++i) add_candidates(i);
    std::ranges::stable_sort(candidates_, {}, &Candidate::bound);
    for (const Candidate& candidate : candidates_) consider(candidate);
    if (report_.ranked.empty()) find_smallest();
    if (report_.ranked.empty() && report_.smallest) {  // it is the nearest miss, and was counted
      const auto bytes = static_cast<double>(report_.smallest->bytes);
      misses_.add(FitReason::Memory, "", 0, bytes, peak_text(*report_.smallest));
    }
    const auto shapes = space_.splits.size() * space_.micros.size() * space_.schedules.size();
    report_.tried = static_cast<std::int64_t>(shapes * space_.shardings.size() * space_.recomputes.size());
    report_.missed = misses_.report();
    return std::move(report_);
  }

 private:
  void add_candidates(std::size_t layout);
  void consider(const Candidate& candidate);
  bool too_slow(const Candidate& candidate);
  bool too_large(const Candidate& candidate, FitLayout& layout);
  std::optional<Held> known_peak(const Candidate& candidate, FitLayout& layout, const std::string& recompute);
  std::optional<ir::Plan> lower(const FitChoice& choice, const FitLayout& layout, ir::DiagnosticSink& sink,
                                bool everything = false);
  Held measure(const ir::Plan& plan, FitLayout* layout, const std::string& recompute);
  void simulate(const Candidate& candidate, const ir::Plan& plan, Held peak);
  void rank(FitRow row, std::size_t order);
  void above_limit(const FitChoice& choice, Held peak, bool exact);
  std::string peak_text(const FitPeak& peak) const;
  void find_smallest();
  void miss(FitReason reason, const Candidate& candidate, double far, std::string why) {
    misses_.add(reason, "", 1, far, fmt::format("{} ({})", why, text(candidate.choice)));
  }
  bool tries(std::string_view recompute) const {
    return std::ranges::find(space_.recomputes, recompute) != space_.recomputes.end();
  }
  double far(const Candidate& candidate) const { return distance(candidate.choice, fit_choice(settings_)); }
  ir::Plan stages_of(const FitChoice& choice, const FitLayout& layout) const {
    ir::Plan plan;
    plan.settings = apply(choice, settings_);
    plan.level = on_lanes_ ? ir::Level::Lane : ir::Level::Unit;  // where its memory will be counted
    plan.stages = make_stages(layout.placement, layout.blocks);
    return plan;
  }

  ir::Settings settings_;  // the configured ones, under the limit
  const Configuration& configuration_;
  const FitSpace& space_;
  const FitRequest& request_;
  std::int64_t limit_;
  std::string least_ = "full";  // of FitLayout::held: what `fit` holds at least
  bool on_lanes_ = false;       // plans have lanes
  // What blocks a rank holds depends on the ZeRO stage: on what runs side by side, on moments from host memory.
  bool apart_ = false;
  FitMisses misses_;
  FitLayouts layouts_;
  std::vector<Candidate> candidates_;
  std::vector<std::size_t> orders_;  // of the ranked: places in the order of the axes
  FitReport report_;
};

void FitSearch::add_candidates(std::size_t index) {
  const FitLayout& layout = layouts_.all()[index];
  std::array<std::unique_ptr<passes::PricedCosts>, 2> prices;  // without ZeRO and with it
  for (const std::string& recompute : space_.recomputes) {
    for (const auto& [zero, reduce] : space_.shardings) {
      Candidate candidate{index, candidates_.size(), layout.choice, 0, 0};
      candidate.choice.recompute = recompute;
      candidate.choice.zero = zero;
      candidate.choice.reduce = reduce;
      const ir::Plan stages = stages_of(candidate.choice, layout);
      ir::DiagnosticSink own;
      if (!check_support(configuration_.with(stages.settings), layout.placement.kind, own)) {
        miss(FitReason::Support, candidate, far(candidate), own.all().front().message);
        continue;
      }
      auto& costs = prices[zero > 0];
      if (!costs) costs = passes::PricedCosts::create(stages, request_.profile, own);
      if (!costs) {
        miss(FitReason::Support, candidate, far(candidate), own.all().front().message);
        continue;
      }
      constexpr double kRounding = 1 - 1e-9;  // sums of a run round in another order
      candidate.bound =
          kRounding * StepBound{stages, layout.placement, layout.sizes.m, layout.schedule->split}.seconds(*costs);
      candidate.state = state_bytes(stages);
      candidates_.push_back(std::move(candidate));
    }
  }
}

void FitSearch::consider(const Candidate& candidate) {
  FitLayout& layout = layouts_.all()[candidate.layout];
  if (candidate.state > limit_) {
    above_limit(candidate.choice, {candidate.state, 0}, false);
    return;
  }
  if (too_slow(candidate)) return;
  layouts_.plan(layout);
  if (layout.state == FitLayout::State::Twin) {
    return miss(FitReason::Same, candidate, far(candidate), "the same plan as schedule=" + layout.reason);
  }
  if (layout.state == FitLayout::State::Failed) {
    return miss(FitReason::Failed, candidate, far(candidate), layout.reason);
  }
  if (too_large(candidate, layout)) return;
  ir::DiagnosticSink own;
  const auto plan = lower(candidate.choice, layout, own);
  if (!plan) {
    const bool fitting = candidate.choice.recompute == "fit";  // nothing else of a verified layout's passes can fail
    return miss(fitting ? FitReason::Memory : FitReason::Failed, candidate, far(candidate) + (fitting ? kFarther : 0),
                own.all().front().message);
  }
  const Held peak = measure(*plan, &layout, candidate.choice.recompute);
  if (peak.bytes > limit_) return above_limit(candidate.choice, peak, true);
  simulate(candidate, *plan, peak);
}

bool FitSearch::too_slow(const Candidate& candidate) {
  if (report_.ranked.size() < request_.top || candidate.bound <= report_.ranked.back().step_time) return false;
  miss(FitReason::Slower, candidate, candidate.bound, fmt::format("a step takes at least {:.4g} s", candidate.bound));
  return true;
}

// From what other candidates of the layout have told; and whether `fit` would recompute nothing.
bool FitSearch::too_large(const Candidate& candidate, FitLayout& layout) {
  const std::string& recompute = candidate.choice.recompute;
  if (apart_) return false;
  if (recompute == "fit") {
    const auto whole = known_peak(candidate, layout, "none"), least = known_peak(candidate, layout, least_);
    if (tries("none") && whole && whole->bytes <= limit_) {
      miss(FitReason::Same, candidate, far(candidate), "the same plan as recompute=none");
      return true;
    }
    if (!least || least->bytes <= limit_) return false;
    FitChoice everything = candidate.choice;
    if (tries(least_)) everything.recompute = least_;
    above_limit(everything, *least, true);
    return true;
  }
  if (!layout.held.contains(recompute)) return false;
  const auto peak = known_peak(candidate, layout, recompute);
  if (!peak || peak->bytes <= limit_) return false;
  above_limit(candidate.choice, *peak, true);
  return true;
}

// The peak of the candidate if it recomputed in that way, or kEverything. Empty: its plan cannot be made.
std::optional<Held> FitSearch::known_peak(const Candidate& candidate, FitLayout& layout,
                                          const std::string& recompute) {
  FitChoice choice = candidate.choice;
  choice.recompute = recompute == kEverything ? "full" : recompute;
  if (apart_ || !layout.held.contains(recompute)) {
    ir::DiagnosticSink own;
    const auto plan = lower(choice, layout, own, recompute == kEverything);
    if (!plan) return std::nullopt;
    const Held peak = measure(*plan, &layout, recompute);
    if (apart_) return peak;
  }
  const ir::Plan stages = stages_of(choice, layout);
  Held most;
  for (std::size_t r = 0; r < layout.held[recompute].size(); ++r) {
    const std::int64_t bytes = ir::total(ir::persistent_bytes(stages, r)) + layout.held[recompute][r];
    if (bytes > most.bytes) most = {bytes, r};
  }
  return most;
}

// As `femc plan` does, but for the verification between passes: what is ranked is verified at the end.
std::optional<ir::Plan> FitSearch::lower(const FitChoice& choice, const FitLayout& layout, ir::DiagnosticSink& sink,
                                         bool everything) {
  ++report_.planned;
  ir::Plan plan = layout.plan;
  plan.settings = apply(choice, settings_);
  if (everything) recompute_all_blocks(plan.settings);
  const auto pipeline =
      passes::parse_pipeline(ir::SourceText("--passes", passes::default_pipeline(plan.settings)), sink);
  if (!pipeline) return std::nullopt;
  for (const passes::PassCall& call : pipeline->calls) {
    if (!call.pass->run(plan, call.options, sink)) return std::nullopt;
  }
  return plan;
}

Held FitSearch::measure(const ir::Plan& plan, FitLayout* layout, const std::string& recompute) {
  Held most;
  std::vector<std::int64_t> held(static_cast<std::size_t>(plan.settings.parallel.pp));
  for (const ir::Program& program : plan.programs) {
    for (std::size_t r = 0; r < held.size(); ++r) {
      const ir::MemoryPeak peak = ir::memory_peak(plan, program, r);
      const auto workspace = peak.persistent[static_cast<std::size_t>(ir::MemoryKind::Workspace)];
      held[r] = std::max(held[r], peak.live + workspace);
      if (peak.bytes() > most.bytes) most = {peak.bytes(), r};
    }
  }
  if (recompute != "fit") layout->held[recompute] = std::move(held);
  return most;
}

void FitSearch::simulate(const Candidate& candidate, const ir::Plan& plan, Held peak) {
  ++report_.simulated;
  ir::DiagnosticSink own;
  const auto costs = passes::PricedCosts::create(plan, request_.profile, own);
  const ir::Program& train = plan.programs.front();
  const auto simulation = costs ? passes::simulate(plan, train, *costs, own) : std::nullopt;
  if (!simulation) return miss(FitReason::Failed, candidate, far(candidate), own.all().front().message);
  FitRow row;
  row.settings = plan.settings;
  row.choice = candidate.choice;
  row.step_time = simulation->step_time;
  row.tokens_per_second =
      passes::throughput(plan, train, request_.profile, simulation->step_time).tokens_per_second;
  row.bubble = simulation->makespan_bubble();
  row.peak = peak.bytes;
  row.heaviest = peak.rank;
  const bool full = report_.ranked.size() >= request_.top;
  if (full && row.step_time > report_.ranked.back().step_time) {
    return miss(FitReason::Slower, candidate, row.step_time, fmt::format("a step takes {:.4g} s", row.step_time));
  }
  for (const FitRow& other : report_.ranked) {
    const bool same = other.step_time == row.step_time && other.peak == row.peak && other.choice.pp == row.choice.pp &&
                      other.choice.micro == row.choice.micro;
    if (same) return miss(FitReason::Same, candidate, far(candidate), "time and memory of " + text(other.choice));
  }
  if (!ir::verify(plan, own)) return miss(FitReason::Failed, candidate, far(candidate), own.all().front().message);
  rank(std::move(row), candidate.order);
}

// Puts the row in its place and drops the last where there are too many.
void FitSearch::rank(FitRow row, std::size_t order) {
  std::size_t at = 0;
  const auto key = [](const FitRow& r, std::size_t o) { return std::tuple(r.step_time, r.peak, o); };
  while (at < report_.ranked.size() && key(report_.ranked[at], orders_[at]) < key(row, order)) ++at;
  report_.ranked.insert(report_.ranked.begin() + static_cast<std::ptrdiff_t>(at), std::move(row));
  orders_.insert(orders_.begin() + static_cast<std::ptrdiff_t>(at), order);
  if (report_.ranked.size() <= request_.top) return;
  const FitRow& last = report_.ranked.back();
  misses_.add(FitReason::Slower, "", 1, last.step_time,
              fmt::format("a step takes {:.4g} s ({})", last.step_time, text(last.choice)));
  report_.ranked.pop_back();
  orders_.pop_back();
}

void FitSearch::above_limit(const FitChoice& choice, Held peak, bool exact) {
  if (!exact) {
    misses_.add(FitReason::Memory, "", 1, kFarther + static_cast<double>(peak.bytes),
                fmt::format("at least {} too much: parameters, gradients, optimizer state ({})",
                            ir::bytes_text(peak.bytes - limit_), text(choice)));
    return;
  }
  misses_.add(FitReason::Memory, "", 1, static_cast<double>(peak.bytes), peak_text({peak.bytes, peak.rank, choice}));
  if (report_.smallest && report_.smallest->bytes <= peak.bytes) return;
  report_.smallest = FitPeak{peak.bytes, peak.rank, choice};
}

std::string FitSearch::peak_text(const FitPeak& peak) const {
  return fmt::format("{} too much: rank {} holds {} ({})", ir::bytes_text(peak.bytes - limit_), peak.rank,
                     ir::bytes_text(peak.bytes), text(peak.choice));
}

// Where the state alone is too much nothing was planned: plans from the least state on until no other can hold less.
void FitSearch::find_smallest() {
  const std::string_view least = tries("fit") ? "fit" : tries("full") ? "full" : "";  // holds less than the others
  std::vector<const Candidate*> rest;
  for (const Candidate& candidate : candidates_) {
    if (candidate.state > limit_ && (least.empty() || candidate.choice.recompute == least)) rest.push_back(&candidate);
  }
  std::ranges::stable_sort(rest, {}, &Candidate::state);
  constexpr int kMost = 1000;
  int plans = 0;
  for (const Candidate* candidate : rest) {
    if (report_.smallest && candidate->state >= report_.smallest->bytes) return;
    FitLayout& layout = layouts_.all()[candidate->layout];
    const std::string recompute = candidate->choice.recompute == "fit" ? least_ : candidate->choice.recompute;
    layouts_.plan(layout);
    if (layout.state != FitLayout::State::Planned) continue;
    if ((apart_ || !layout.held.contains(recompute)) && ++plans > kMost) return;
    const auto peak = known_peak(*candidate, layout, recompute);
    if (!peak || (report_.smallest && report_.smallest->bytes <= peak->bytes)) continue;
    report_.smallest = FitPeak{peak->bytes, peak->rank, candidate->choice};
    if (tries(recompute)) report_.smallest->choice.recompute = recompute;
  }
}

}  // namespace

std::string_view name(FitReason reason) {
  switch (reason) {
    case FitReason::Batch: return "batch";
    case FitReason::Layers: return "layers";
    case FitReason::Schedule: return "schedule";
    case FitReason::Support: return "support";
    case FitReason::Memory: return "memory";
    case FitReason::Slower: return "slower";
    case FitReason::Same: return "same";
    case FitReason::Failed: return "failed";
  }
  return "";
}

std::optional<FitReport> fit(const Configuration& configuration, const ScheduleFolders& folders,
                             const FitRequest& request, ir::DiagnosticSink& sink) {
  const ir::Settings& s = configuration.settings();
  // The sizes may be wrong together and right in some of the tried settings.
  if (!check_limits(configuration, sink)) return std::nullopt;
  if (!check_support(configuration, PlacementKind::Loop, sink)) return std::nullopt;
  const auto space = fit_space(s, request.fixed, folders, sink);
  if (!space) return std::nullopt;
  return FitSearch(configuration, *space, folders, request).run(sink);
}

}  // namespace fem::compiler
