#include "executor/update.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "executor/error.hpp"
#include "executor/units/loops.hpp"

namespace fem::exec {
namespace {

// LibTorch's operators would allocate: a scalar's tensor, a view's object.
std::span<float> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

void add(std::span<float> sum, std::span<const float> term) {
  loops::add(sum.data(), term.data(), static_cast<loops::Count>(sum.size()));
}

}  // namespace

Update::Update(const ir::Plan& plan, Parameters& parameters, Communicator& comm, BlockPool& pool)
    : plan_(plan),
      groups_(plan.stages, static_cast<int>(plan.settings.parallel.pp)),
      parameters_(parameters),
      comm_(comm),
      pool_(pool),
      norm_(plan, parameters.replica()),
      optimizers_(plan.stages.size()),
      replicas_reduced_(plan.stages.size()) {
  for (StageParameters& mine : parameters.stages())
    optimizers_[static_cast<std::size_t>(mine.stage)] = std::make_unique<AdamW>(plan.settings, mine);
  if (plan.settings.model.tied) find_tied_copies();
}

void Update::find_tied_copies() {
  for (StageParameters& mine : parameters_.stages())
    for (UnitParameters& unit : mine.units) {
      if (unit.kind == ir::UnitKind::block) continue;
      std::vector<at::Tensor>& copies = unit.kind == ir::UnitKind::embedding ? embeddings_ : heads_;
      copies.push_back(unit.grads[static_cast<std::size_t>(param_position(unit.kind, "weight"))]);
    }
}


StageParameters& Update::stage(int stage) {
  StageParameters* mine = parameters_.find_stage(stage);
  FEM_CHECK(mine != nullptr, "stage " + std::to_string(stage) + " is not on this rank");
  return *mine;
}

void Update::begin_step() {
  tied_reduced_ = false;
  replicas_reduced_.assign(replicas_reduced_.size(), false);
  for (StageParameters& mine : parameters_.stages())
    for (UnitParameters& unit : mine.units) unit.reduced_before = false;
}

template <class Use>
void Update::each_unit(int s, int unit, Use use) {
  for (UnitParameters& mine : stage(s).units)
    if (unit < 0 || mine.unit == unit) use(mine);
}

void Update::zero_grad(int s, int unit, ir::Lane lane) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    if (mine.grad_window && !mine.grad_block) {
      mine.grad_block = pool_.take(mine.grad_window->bytes(), lane);
      mine.grad_window->place(mine.grad_block.data());
    }
    std::ranges::fill(values(mine.grad), 0.0f);
  });
}

// A sum of two has the same bits in either order, so neither the ranks' order nor the directions' shows in it.
void Update::reduce_replicas(int s) {
  const int other = groups_.other_replica(s);
  FEM_CHECK(other >= 0, "stage " + std::to_string(s) + " has no replica");
  StageParameters& mine = stage(s);
  StageParameters* replica = parameters_.find_stage(other);
  if (!replica) {
    FEM_CHECK(comm_.group_size(ir::Group::replica) == 2, "the replicas of a stage are on two ranks");
    for (UnitParameters& unit : mine.units) comm_.all_reduce_sum(ir::Group::replica, values(unit.grad));
    return;
  }
  if (replicas_reduced_[static_cast<std::size_t>(other)]) return;
  replicas_reduced_[static_cast<std::size_t>(s)] = true;
  for (std::size_t u = 0; u < mine.units.size(); ++u) {
    add(values(mine.units[u].grad), values(replica->units[u].grad));
    std::ranges::copy(values(mine.units[u].grad), values(replica->units[u].grad).begin());
  }
}

void Update::reduce_tied(int s) {
  FEM_CHECK(plan_.settings.model.tied, "the plan reduces a tied embedding, but the model has none");
  FEM_CHECK(!embeddings_.empty() || !heads_.empty(),
            "stage " + std::to_string(s) + " holds no copy of the tied embedding");
  if (tied_reduced_) return;
  tied_reduced_ = true;
  at::Tensor& sum = embeddings_.empty() ? heads_.front() : embeddings_.front();
  if (!embeddings_.empty() && !heads_.empty()) {
    add(values(sum), values(heads_.front()));
  } else {
    FEM_CHECK(comm_.group_size(ir::Group::tied) == 2, "the copies of a tied embedding are on two ranks");
    if (!tied_scratch_.defined()) tied_scratch_ = at::empty({2, sum.size(0), sum.size(1)}, at::kFloat);
    comm_.all_gather(ir::Group::tied, sum.const_data_ptr<float>(), tied_scratch_.data_ptr<float>(), sum.nbytes());
    const std::span<const float> both = values(tied_scratch_);
    std::ranges::copy(both.first(both.size() / 2), values(sum).begin());
    add(values(sum), both.last(both.size() / 2));
  }
  // Two replicas of one copy hold the same bits by now.
  for (std::vector<at::Tensor>* copies : {&embeddings_, &heads_})
    for (at::Tensor& copy : *copies)
      if (!copy.is_same(sum)) std::ranges::copy(values(sum), values(copy).begin());
}

void Update::all_reduce(int s, int unit, ir::Group group) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    comm_.all_reduce_sum(group, values(mine.grad));
    keep_reduced(mine);
  });
}

void Update::reduce_scatter(int s, int unit, ir::Group group) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    FEM_CHECK(comm_.group_size(group) * mine.owned == mine.elements, "the group does not divide the gradients evenly");
    comm_.reduce_scatter_sum(group, values(mine.grad));
    keep_reduced(mine);
  });
}

void Update::keep_reduced(UnitParameters& unit) {
  if (unit.reduced_in_place) return;
  const std::span<const float> own =
      values(unit.grad).subspan(static_cast<std::size_t>(unit.owned_begin), static_cast<std::size_t>(unit.owned));
  if (unit.reduced_before) {
    add(values(unit.reduced), own);
  } else {
    std::ranges::copy(own, values(unit.reduced).begin());
  }
  unit.reduced_before = true;
  if (!unit.grad_window) return;
  unit.grad_window->place(nullptr);
  unit.grad_block.reset();
}

void Update::unshard(int s, int unit, ir::Group group, ir::Lane lane) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    if (mine.compute_window && !mine.compute_block) {
      mine.compute_block = pool_.take(mine.compute_window->bytes(), lane);
      mine.compute_window->place(mine.compute_block.data());
    }
    parameters_.gather(mine, comm_, group);
  });
}

void Update::reshard(int s, int unit) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    parameters_.release(mine);
    if (!mine.compute_window) return;
    mine.compute_window->place(nullptr);
    mine.compute_block.reset();
  });
}

double Update::grad_norm(std::int64_t tokens) {
  const double norm = norm_(parameters_, comm_);
  return tokens > 0 ? norm / static_cast<double>(tokens) : 0.0;
}

std::string Update::not_finite() const { return norm_.not_finite(); }

void Update::clip(int s, double norm, std::int64_t tokens) {
  const auto scale = static_cast<float>(gradient_scale(norm, tokens, plan_.settings.optimizer.clip_norm));
  for (UnitParameters& unit : stage(s).units)
    loops::scale(unit.reduced.data_ptr<float>(), scale, unit.reduced.numel());
}

void Update::optimizer_step(int s, double lr, std::int64_t update) {
  AdamW* optimizer = optimizers_[static_cast<std::size_t>(s)].get();
  FEM_CHECK(optimizer != nullptr, "stage " + std::to_string(s) + " is not on this rank");
  optimizer->step(lr, update);
}

}  // namespace fem::exec
