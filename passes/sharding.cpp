#include "passes/sharding.hpp"

#include <utility>

#include "ir/builder.hpp"
#include "ir/units.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;
using ir::ResourceKind;

constexpr ir::Group kGroup = ir::Group::dp_cp;

Action on(ActionKind kind, int stage, int unit) {
  Action a = ir::action(kind, stage);
  a.unit = static_cast<std::int16_t>(unit);
  if (ir::info(kind).has(ir::operand::kG)) a.group = kGroup;
  return a;
}

}  // namespace

Sharding::Sharding(const ir::Plan& plan)
    : plan_(plan),
      zero_(plan.settings.parallel.zero),
      by_microbatch_(plan.settings.parallel.reduce == "microbatch") {}

std::vector<Action> Sharding::rewrite(std::span<const Action> actions) {
  out_.clear();
  out_.reserve(2 * actions.size());
  held_ = {};
  for (const Action& a : actions) {
    const ir::ActionInfo& row = ir::info(a.kind);
    if (zero_ == 3 && a.unit >= 0 && row.reads.has(ResourceKind::Params)) hold(a);
    if (zero_ == 3 && a.stage < 0) release();  // the end of the schedule: nothing computes after the first reduction
    switch (a.kind) {
      case ActionKind::ZeroGrad: each_accumulated(a, a.kind); break;
      case ActionKind::AllReduce: each_accumulated(a, reduction()); break;
      case ActionKind::Backward:
      case ActionKind::BackwardWeight: gradient(a); break;
      case ActionKind::OptimizerStep:
        out_.push_back(a);
        // The working copies of the other ranks' parts are old now.
        if (zero_ == 1 || zero_ == 2) out_.push_back(on(ActionKind::Unshard, a.stage, -1));
        break;
      default: out_.push_back(a); break;
    }
  }
  release();
  return std::move(out_);
}

ActionKind Sharding::reduction() const { return zero_ > 0 ? ActionKind::ReduceScatter : ActionKind::AllReduce; }

// Gradients of tied copies are complete only at the end of the step, when ReduceTiedGrad has added them.
bool Sharding::once_a_step(int unit) const {
  return ir::reduced_once(plan_.settings, ir::unit_kind(plan_.settings, unit));
}

// ZeroGrad or a reduction of the gradients that accumulate over the step.
void Sharding::each_accumulated(const Action& a, ActionKind kind) {
  const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(a.stage)];
  if (!by_microbatch_) {
    out_.push_back(on(kind, a.stage, -1));
    return;
  }
  for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) {
    if (once_a_step(u)) out_.push_back(on(kind, a.stage, u));
  }
}

void Sharding::gradient(const Action& a) {
  const bool own = !once_a_step(a.unit);
  if (own) out_.push_back(on(ActionKind::ZeroGrad, a.stage, a.unit));
  out_.push_back(a);
  if (own) out_.push_back(on(reduction(), a.stage, a.unit));
}

// One unit's parameters are gathered at a time: consecutive uses share a gather.
void Sharding::hold(const Action& a) {
  if (held_.stage == a.stage && held_.unit == a.unit) return;
  release();
  out_.push_back(on(ActionKind::Unshard, a.stage, a.unit));
  held_ = {a.stage, a.unit};
}

void Sharding::release() {
  if (held_.stage >= 0) out_.push_back(on(ActionKind::Reshard, held_.stage, held_.unit));
  held_ = {};
}

}  // namespace fem::passes
