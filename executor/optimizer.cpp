#include "executor/optimizer.hpp"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>

namespace fem::exec {

AdamW::AdamW(const ir::Settings& settings, StageParameters& stage)
    : beta1_(settings.optimizer.beta1),
      beta2_(settings.optimizer.beta2),
      eps_(settings.optimizer.eps),
      count_(at::zeros({}, at::kFloat)),
      stage_(stage) {
  decayed_.weight_decay = settings.optimizer.weight_decay;
  for (UnitParameters& unit : stage.units)
    for (std::size_t i = 0; i < unit.masters.size(); ++i)
      add(ir::info(unit.kind).params[i].decay ? decayed_ : plain_, unit, i);
}

void AdamW::add(Set& set, UnitParameters& unit, std::size_t i) {
  set.params.push_back(unit.masters[i]);
  set.grads.push_back(unit.grads[i]);
  set.exp_avgs.push_back(unit.exp_avgs[i]);
  set.exp_avg_sqs.push_back(unit.exp_avg_sqs[i]);
  set.steps.push_back(count_);
}

void AdamW::step(double lr, std::int64_t update) {
  count_.fill_(static_cast<double>(update));
  for (Set* set : {&decayed_, &plain_}) {
    if (set->params.empty()) continue;
    at::_fused_adamw_(set->params, set->grads, set->exp_avgs, set->exp_avg_sqs, {}, set->steps, lr, beta1_, beta2_,
                      set->weight_decay, eps_, /*amsgrad=*/false, /*maximize=*/false);
  }
  for (UnitParameters& unit : stage_.units) Parameters::refresh_compute(unit);
}

}  // namespace fem::exec
