#include "executor/stage_runner.hpp"

#include <string>

#include "executor/error.hpp"

namespace fem::exec {

StageRunner::StageRunner(const ir::Plan& plan, Parameters& parameters, const ParallelContext& context,
                         Activations& activations)
    : activations_(activations), local_(plan.stages.size()) {
  for (StageParameters& mine : parameters.stages()) {
    const ir::Stage& stage = plan.stages[static_cast<std::size_t>(mine.stage)];
    auto local = std::make_unique<Local>();
    local->parameters = &mine;
    local->previous = stage.prev;
    local->first = stage.prev < 0;
    local->last = stage.next < 0;
    for (const UnitParameters& unit : mine.units) local->units.push_back(make_unit(plan.settings, unit.unit, context));
    local_[static_cast<std::size_t>(mine.stage)] = std::move(local);
  }
}

StageRunner::Local& StageRunner::local(int stage) {
  FEM_CHECK(has_stage(stage), "stage " + std::to_string(stage) + " is not on this rank");
  return *local_[static_cast<std::size_t>(stage)];
}

void StageRunner::forward(int stage, int m, const Microbatch& batch, bool keep, LossReduction& losses) {
  Local& here = local(stage);
  const std::int64_t index = activations_.index(stage, m);
  at::Tensor x;
  if (!here.first) x = activations_.take_output(activations_.index(here.previous, m));
  if (here.first) losses.first_stage_read(m, hash_microbatch(batch));
  if (here.last) losses.last_stage_read(m, hash_microbatch(batch));
  for (std::size_t u = 0; u < here.units.size(); ++u) {
    Tensors* saved = keep ? &activations_.saved(index)[u] : nullptr;
    x = here.units[u]->forward(here.parameters->units[u].params, x, batch, saved, &losses.loss(m));
  }
  if (!here.last) activations_.put_output(index, std::move(x));
}

void StageRunner::run_backward(int stage, int m, bool weights) {
  Local& here = local(stage);
  const std::int64_t index = activations_.index(stage, m);
  at::Tensor dy;
  if (!here.last) dy = activations_.take_gradient(index);
  for (std::size_t u = here.units.size(); u-- > 0;) {
    Tensors& work = activations_.work(index)[u];
    Tensors& saved = activations_.saved(index)[u];
    FEM_CHECK(!saved.empty(), "the saved tensors are read before they are written");
    dy = here.units[u]->backward_input(here.parameters->units[u].params, dy, &saved, &work);
    saved.clear();
    if (!weights) continue;
    here.units[u]->backward_weight(&work, here.parameters->units[u].grads);
    work.clear();
  }
  if (!here.first) activations_.put_gradient(activations_.index(here.previous, m), std::move(dy));
}

void StageRunner::backward(int stage, int m) { run_backward(stage, m, true); }
void StageRunner::backward_input(int stage, int m) { run_backward(stage, m, false); }

void StageRunner::backward_weight(int stage, int m) {
  Local& here = local(stage);
  const std::int64_t index = activations_.index(stage, m);
  for (std::size_t u = here.units.size(); u-- > 0;) {
    Tensors& work = activations_.work(index)[u];
    FEM_CHECK(!work.empty(), "the weight work is read before it is written");
    here.units[u]->backward_weight(&work, here.parameters->units[u].grads);
    work.clear();
  }
}

}  // namespace fem::exec
