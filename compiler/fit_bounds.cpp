#include "compiler/fit_bounds.hpp"

#include <algorithm>
#include <limits>

#include "ir/builder.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/replicas.hpp"
#include "ir/units.hpp"
#include "passes/manager.hpp"
#include "passes/recomputed_blocks.hpp"

namespace fem::compiler {
namespace {

using ir::Action;
using ir::ActionKind;

constexpr double kNever = std::numeric_limits<double>::infinity();

// Prices of one stage, as its plan will have them: whole, or unit by unit.
class StagePrices {
 public:
  StagePrices(const ir::Plan& plan, const passes::PricedCosts& costs)
      : plan_(plan),
        costs_(costs),
        by_unit_(passes::default_pipeline(plan.settings).find("units") != std::string::npos) {}

  double forward(int s) const { return sum(s, ActionKind::Forward); }
  double backward(int s) const {
    const double parts = sum(s, ActionKind::BackwardInput) + sum(s, ActionKind::BackwardWeight);
    return std::min(sum(s, ActionKind::Backward), parts);
  }
  // Recomputing, where it is sure; the pass option `fit` may do without.
  double again(int s) const {
    const auto& memory = plan_.settings.memory;
    if (memory.recompute != "selective" && memory.recompute != "full") return 0;
    const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(s)];
    const std::vector<bool> chosen =
        passes::recomputed_blocks(plan_.settings.model.layers, memory.recompute_every, memory.recompute_first,
                                  memory.recompute_last);
    double seconds = 0;
    for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) {
      if (ir::unit_kind(plan_.settings, u) != ir::UnitKind::block) continue;
      if (!chosen[static_cast<std::size_t>(ir::unit_layer(u))]) continue;
      Action a = action(ActionKind::Recompute, s, u);
      if (memory.recompute == "selective") a.slot = 1;
      seconds += price(a);
    }
    return seconds;
  }
  double reduction(int s) const {
    const auto& parallel = plan_.settings.parallel;
    if (parallel.reduce != "step") return 0;
    Action a = action(parallel.zero > 0 ? ActionKind::ReduceScatter : ActionKind::AllReduce, s, -1);
    a.group = parallel.zero > 0 ? ir::piece_group(plan_.settings) : ir::Group::dp_cp;
    return price(a);
  }
  double update(int s) const {
    return price(action(ActionKind::ClipGrad, s, -1)) + price(action(ActionKind::OptimizerStep, s, -1));
  }
  double gather(int s) const {
    const std::int64_t zero = plan_.settings.parallel.zero;
    if ((zero != 1 && zero != 2) || ir::gathers_before_use(plan_.settings)) return 0;
    Action a = action(ActionKind::Unshard, s, -1);
    a.group = ir::piece_group(plan_.settings);
    return price(a);
  }

 private:
  static Action action(ActionKind kind, int s, int u) {
    Action a = ir::action(kind, s);
    a.unit = static_cast<std::int16_t>(u);
    return a;
  }
  double price(const Action& a) const {
    return costs_.action(plan_, plan_.stages[static_cast<std::size_t>(a.stage)].pp, a, nullptr);
  }
  double sum(int s, ActionKind kind) const {
    if (!by_unit_) return price(action(kind, s, -1));
    const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(s)];
    double seconds = 0;
    for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) seconds += price(action(kind, s, u));
    return seconds;
  }

  const ir::Plan& plan_;
  const passes::PricedCosts& costs_;
  bool by_unit_;
};

}  // namespace

double StepBound::seconds(const passes::PricedCosts& costs) const {
  const StagePrices prices(stages, costs);
  double work = 0, update = 0;
  for (int r = 0; r < placement.p; ++r) {
    double own = 0, before = kNever, up = kNever, reduced = kNever, updated = 0, gathered = kNever;
    for (int slot = 0; slot < placement.slots(); ++slot) {
      const int s = placement.stage(r, slot);
      const double each = prices.forward(s) + prices.backward(s) + prices.again(s);
      own += static_cast<double>(placement.microbatches(slot, microbatches)) * each;
      double down = 0, back = 0;
      for (int other = placement.previous(s); other >= 0; other = placement.previous(other)) {
        down += prices.forward(other);
        back += prices.backward(other);
      }
      before = std::min(before, down);
      up = std::min(up, back);
      reduced = std::min(reduced, prices.reduction(s));
      updated += prices.update(s);
      gathered = std::min(gathered, prices.gather(s));
    }
    work = std::max(work, before + own + std::max(split ? 0 : up, reduced));
    update = std::max(update, updated + gathered);
  }
  return work + update;
}

std::int64_t state_bytes(const ir::Plan& stages) {
  std::int64_t most = 0;
  for (std::int64_t r = 0; r < stages.settings.parallel.pp; ++r) {
    most = std::max(most, ir::total(ir::persistent_bytes(stages, static_cast<std::size_t>(r))));
  }
  return most;
}

}  // namespace fem::compiler
