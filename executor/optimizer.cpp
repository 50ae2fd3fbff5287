#include "executor/optimizer.hpp"

#include <ATen/ops/_fused_adamw_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include "executor/units/formats.hpp"

namespace fem::exec {

AdamW::AdamW(const ir::Settings& settings, StageParameters& stage)
    : beta1_(settings.optimizer.beta1),
      beta2_(settings.optimizer.beta2),
      eps_(settings.optimizer.eps),
      count_(at::zeros({}, stage.units.empty() ? at::TensorOptions(at::kFloat) : stage.units[0].master.options())) {
  for (UnitParameters& unit : stage.units) {
    Sets& sets = units_.emplace_back();
    sets.unit = &unit;
    sets.decayed.weight_decay = settings.optimizer.weight_decay;
    for (const OwnedPart& part : unit.parts) {
      const bool decays = ir::info(unit.kind).params[static_cast<std::size_t>(part.param)].decay;
      add(decays ? sets.decayed : sets.plain, part);
    }
  }
}

void AdamW::add(Set& set, const OwnedPart& part) {
  set.params.push_back(part.master);
  set.grads.push_back(part.grad);
  set.exp_avgs.push_back(part.exp_avg);
  set.exp_avg_sqs.push_back(part.exp_avg_sq);
  set.steps.push_back(count_);
}

void AdamW::step(double lr, std::int64_t update, int unit) {
  over_memory(count_, [&] { *out<float>(count_) = static_cast<float>(update); });
  for (Sets& sets : units_) {
    if (unit >= 0 && sets.unit->unit != unit) continue;
    over_memory(count_, [&] {
      step(sets.decayed, lr);
      step(sets.plain, lr);
    });
    if (sets.unit->gathered) Parameters::refresh_compute(*sets.unit);
  }
}

void AdamW::step(Set& set, double lr) const {
  if (set.params.empty()) return;
  // Past the dispatcher, which copies the lists. It allocates nothing.
  at::cpu::_fused_adamw_(set.params, set.grads, set.exp_avgs, set.exp_avg_sqs, {}, set.steps, lr, beta1_, beta2_,
                         set.weight_decay, eps_, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace fem::exec
