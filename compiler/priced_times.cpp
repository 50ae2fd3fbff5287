#include "compiler/priced_times.hpp"

#include <algorithm>
#include <cmath>

#include "compiler/profile_reader.hpp"
#include "ir/plan.hpp"
#include "passes/buffer_sizes.hpp"
#include "passes/cost_model.hpp"
#include "passes/process_layout.hpp"

namespace fem::compiler {
namespace {

using passes::HardwareProfile;
using passes::PassSeconds;

constexpr double kForward = 1e6;
constexpr double kMostForwards = 1e6;  // nothing counts more, so that sums of a whole order fit

PassSeconds unit_times(const ir::Settings& settings, const HardwareProfile* profile, ir::UnitKind kind) {
  if (profile) return passes::unit_seconds(settings, *profile, kind);
  const ir::UnitDims dims = ir::unit_dims(settings);
  const ir::UnitInfo& unit = ir::info(kind);
  PassSeconds operations;
  operations.forward = static_cast<double>(unit.flops_forward(dims));
  operations.input = static_cast<double>(unit.flops_backward_input(dims));
  operations.weight = static_cast<double>(unit.flops_backward_weight(dims));
  return operations;
}

// The mean over all stages; a stage that the profile has measured counts as measured.
PassSeconds mean_stage(const ir::Settings& settings, int stages, const HardwareProfile* profile) {
  PassSeconds sum;
  const auto add = [&sum](double times, const PassSeconds& part) {
    sum.forward += times * part.forward;
    sum.input += times * part.input;
    sum.weight += times * part.weight;
  };
  add(1, unit_times(settings, profile, ir::UnitKind::embedding));
  add(static_cast<double>(settings.model.layers), unit_times(settings, profile, ir::UnitKind::block));
  add(1, unit_times(settings, profile, ir::UnitKind::head));
  const double overhead = profile ? profile->overhead : 0, share = 1.0 / stages;
  const PassSeconds mean{sum.forward * share + overhead, sum.input * share + overhead, sum.weight * share + overhead};
  if (!profile) return mean;
  sum = {};
  for (int stage = 0; stage < stages; ++stage) {
    const auto found = profile->measured.stage.find(stage);
    const passes::PassTimes measured = found == profile->measured.stage.end() ? passes::PassTimes{} : found->second;
    add(share, {measured.forward.value_or(mean.forward), measured.input.value_or(mean.input),
                measured.weight.value_or(mean.weight)});
  }
  return sum;
}

double transfer_seconds(const ir::Settings& settings, const HardwareProfile& profile) {
  if (profile.measured.p2p) return *profile.measured.p2p;
  if (settings.parallel.pp == 1) return 0;
  const ir::UnitDims dims = ir::unit_dims(settings);
  const double bytes = static_cast<double>(dims.tokens * dims.hidden) *
                       static_cast<double>(passes::format_bytes(settings, ir::Format::Compute));
  const passes::Link& link = profile.link(passes::ProcessLayout(settings, profile.node_size).link(0, 1));
  return link.latency + bytes / link.bandwidth;
}

}  // namespace

PricedTimes price_times(const ir::Settings& settings, const Placement& placement, const HardwareProfile* profile) {
  const PassSeconds stage = mean_stage(settings, placement.p * placement.v, profile);
  if (!(stage.forward > 0)) return {};  // a profile may say so: then nothing is known
  const auto relative = [&](double seconds) {
    return std::llround(kForward * std::clamp(seconds / stage.forward, 0.0, kMostForwards));
  };
  PricedTimes times;
  times.forward = relative(stage.forward);
  times.input = std::max<std::int64_t>(relative(stage.input), 1);
  times.weight = std::max<std::int64_t>(relative(stage.weight), 1);
  times.transfer = profile ? relative(transfer_seconds(settings, *profile)) : 0;
  return times;
}

bool load_named_profile(const Configuration& configuration, std::optional<HardwareProfile>& profile,
                        ir::DiagnosticSink& sink) {
  const std::string& name = configuration.settings().parallel.profile;
  if (name.empty()) return true;
  const auto report = [&](std::string message) { configuration.error(sink, {"parallel.profile"}, std::move(message)); };
  profile = load_profile(name, default_profile_folders(), report, sink);
  return profile.has_value();
}

}  // namespace fem::compiler
