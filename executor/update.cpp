#include "executor/update.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include "executor/error.hpp"

namespace fem::exec {

Update::Update(const ir::Plan& plan, Parameters& parameters, Communicator& comm)
    : plan_(plan), parameters_(parameters), comm_(comm), norm_(plan), optimizers_(plan.stages.size()) {
  for (StageParameters& mine : parameters.stages())
    optimizers_[static_cast<std::size_t>(mine.stage)] = std::make_unique<AdamW>(plan.settings, mine);
}

StageParameters& Update::stage(int stage) {
  StageParameters* mine = parameters_.find_stage(stage);
  FEM_CHECK(mine != nullptr, "stage " + std::to_string(stage) + " is not on this rank");
  return *mine;
}

void Update::zero_grad(int s) {
  for (UnitParameters& unit : stage(s).units) unit.grad.zero_();
}

at::Tensor* Update::tied_grad(ir::UnitKind kind) {
  for (StageParameters& mine : parameters_.stages())
    for (UnitParameters& unit : mine.units)
      if (unit.kind == kind) return &unit.grads[static_cast<std::size_t>(param_position(kind, "weight"))];
  return nullptr;
}

void Update::reduce_tied(int s) {
  FEM_CHECK(plan_.settings.model.tied, "the plan reduces a tied embedding, but the model has none");
  at::Tensor* embedding = tied_grad(ir::UnitKind::embedding);
  at::Tensor* head = tied_grad(ir::UnitKind::head);
  FEM_CHECK(embedding || head, "stage " + std::to_string(s) + " holds no copy of the tied embedding");
  if (embedding && head) {
    if (tied_reduced_) return;
    embedding->add_(*head);
    head->copy_(*embedding);
    tied_reduced_ = true;
    return;
  }
  at::Tensor& mine = embedding ? *embedding : *head;
  FEM_CHECK(comm_.group_size(ir::Group::tied) == 2, "the copies of a tied embedding are on two ranks");
  if (!tied_scratch_.defined()) tied_scratch_ = at::empty({2, mine.size(0), mine.size(1)}, at::kFloat);
  comm_.all_gather(ir::Group::tied, mine.const_data_ptr<float>(), tied_scratch_.data_ptr<float>(), mine.nbytes());
  at::add_out(mine, tied_scratch_[0], tied_scratch_[1]);
}

void Update::all_reduce(int s, int unit, ir::Group group) {
  for (UnitParameters& mine : stage(s).units)
    if (unit < 0 || mine.unit == unit)
      comm_.all_reduce_sum(group, {mine.grad.data_ptr<float>(), static_cast<std::size_t>(mine.grad.numel())});
}

double Update::grad_norm(std::int64_t tokens) {
  const double norm = norm_(parameters_, comm_);
  return tokens > 0 ? norm / static_cast<double>(tokens) : 0.0;
}

std::string Update::not_finite() const { return norm_.not_finite(); }

void Update::clip(int s, double norm, std::int64_t tokens) {
  const double scale = gradient_scale(norm, tokens, plan_.settings.optimizer.clip_norm);
  for (UnitParameters& unit : stage(s).units) unit.grad.mul_(scale);
}

void Update::optimizer_step(int s, double lr, std::int64_t update) {
  AdamW* optimizer = optimizers_[static_cast<std::size_t>(s)].get();
  FEM_CHECK(optimizer != nullptr, "stage " + std::to_string(s) + " is not on this rank");
  optimizer->step(lr, update);
}

}  // namespace fem::exec
