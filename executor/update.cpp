#include "executor/update.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "executor/error.hpp"
#include "executor/units/formats.hpp"
#include "executor/units/loops.hpp"
#include "ir/beside_blocks.hpp"

namespace fem::exec {
namespace {

// Own loops over whole fp32 tensors: LibTorch's operators would allocate, a scalar's tensor or a view's object.
std::span<float> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}
void clear(const at::Tensor& tensor) {
  over_memory(tensor, [&] { std::ranges::fill(values(tensor), 0.0f); });
}
void copy(const at::Tensor& from, const at::Tensor& to) {
  over_memory(to, [&] { std::ranges::copy(values(from), values(to).begin()); });
}
void add(const at::Tensor& sum, const at::Tensor& term) {
  over_memory(sum, [&] { loops::add(out<float>(sum), in<float>(term), sum.numel()); });
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
      payload_(plan.settings.precision.reduce == "bf16" ? Payload::Bf16 : Payload::Fp32),
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
  if (embeddings_.empty() == heads_.empty()) return;  // no copy on another rank
  const at::Tensor& mine = embeddings_.empty() ? heads_.front() : embeddings_.front();
  tied_scratch_ = at::empty({2 * std::min(mine.numel(), ir::kTiedPiece)}, mine.options());
}

StageParameters& Update::stage(int stage) {
  StageParameters* mine = parameters_.find_stage(stage);
  FEM_CHECK(mine != nullptr, "stage " + std::to_string(stage) + " is not on this rank");
  return *mine;
}

void Update::begin_step(double loss_scale) {
  loss_scale_ = loss_scale;
  tied_reduced_ = false;
  replicas_reduced_.assign(replicas_reduced_.size(), false);
  for (StageParameters& mine : parameters_.stages())
    for (UnitParameters& unit : mine.units) unit.reduced_before = false;
}

template <class Use>
void Update::each_buffer(Use use) const {
  for (StageParameters& mine : parameters_.stages())
    for (UnitParameters& unit : mine.units)
      for (std::optional<ArenaBuffer>* buffer : {&unit.compute_buffer, &unit.grad_buffer, &unit.moments_buffer})
        if (*buffer) use(**buffer);
}

std::int64_t Update::alive() const {
  std::int64_t count = 0;
  each_buffer([&](const ArenaBuffer& buffer) { count += buffer.block ? 1 : 0; });
  return count;
}

void Update::abandon() {
  each_buffer([](ArenaBuffer& buffer) { buffer.give_back(); });
}

template <class Use>
void Update::each_unit(int s, int unit, Use use) {
  for (UnitParameters& mine : stage(s).units)
    if (unit < 0 || mine.unit == unit) use(mine);
}

void Update::zero_grad(int s, int unit, ir::Lane lane) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    if (mine.grad_buffer) mine.grad_buffer->take(pool_, lane);
    clear(mine.grad);
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
    add(mine.units[u].grad, replica->units[u].grad);
    copy(mine.units[u].grad, replica->units[u].grad);
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
    add(sum, heads_.front());
  } else {
    FEM_CHECK(comm_.group_size(ir::Group::tied) == 2, "the copies of a tied embedding are on two ranks");
    sum_tied(sum);
  }
  // Two replicas of one copy hold the same bits by now.
  for (std::vector<at::Tensor>* copies : {&embeddings_, &heads_})
    for (at::Tensor& copy : *copies)
      if (!copy.is_same(sum)) fem::exec::copy(sum, copy);
}

void Update::sum_tied(const at::Tensor& sum) {
  const std::span<float> mine = values(sum), both = values(tied_scratch_);
  const auto piece = static_cast<std::size_t>(ir::kTiedPiece);
  for (std::size_t begin = 0; begin < mine.size(); begin += piece) {
    const std::size_t n = std::min(mine.size() - begin, piece);
    comm_.all_gather(ir::Group::tied, mine.data() + begin, both.data(), n * sizeof(float));
    over_memory(sum, [&] {
      std::ranges::copy(both.first(n), mine.begin() + static_cast<std::ptrdiff_t>(begin));
      loops::add(mine.data() + begin, both.data() + n, static_cast<loops::Count>(n));
    });
  }
}

void Update::all_reduce(int s, int unit, ir::Group group) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    comm_.all_reduce_sum(group, values(mine.grad), payload_);
    keep_reduced(mine);
  });
}

void Update::reduce_scatter(int s, int unit, ir::Group group) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    FEM_CHECK(comm_.group_size(group) * mine.owned == mine.elements, "the group does not divide the gradients evenly");
    comm_.reduce_scatter_sum(group, values(mine.grad), payload_);
    keep_reduced(mine);
  });
}

void Update::all_reduce_shard(int s, int unit, ir::Group group) {
  each_unit(s, unit, [&](UnitParameters& mine) { comm_.all_reduce_sum(group, values(mine.reduced), payload_); });
}

void Update::keep_reduced(UnitParameters& unit) {
  if (unit.reduced_in_place) return;
  if (unit.reduced_before) {
    add(unit.reduced, unit.grad_own);
  } else {
    copy(unit.grad_own, unit.reduced);
  }
  unit.reduced_before = true;
  if (unit.grad_buffer) unit.grad_buffer->give_back();
}

void Update::unshard(int s, int unit, ir::Group group, ir::Lane lane) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    if (mine.compute_buffer) mine.compute_buffer->take(pool_, lane);
    parameters_.gather(mine, comm_, group);
  });
}

void Update::reshard(int s, int unit) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    parameters_.release(mine);
    if (mine.compute_buffer) mine.compute_buffer->give_back();
  });
}

double Update::grad_norm(std::int64_t tokens) {
  const double norm = norm_(parameters_, comm_) / loss_scale_;
  return tokens > 0 ? norm / static_cast<double>(tokens) : 0.0;
}

std::string Update::not_finite(const Topology& topology) const { return norm_.not_finite(topology); }

void Update::clip(int s, double norm, std::int64_t tokens) {
  const double factor = gradient_scale(norm, tokens, plan_.settings.optimizer.clip_norm) / loss_scale_;
  for (UnitParameters& unit : stage(s).units)
    over_memory(unit.reduced, [&] {
      loops::scale(unit.reduced.data_ptr<float>(), static_cast<float>(factor), unit.reduced.numel());
    });
}

void Update::optimizer_step(int s, int unit, double lr, std::int64_t update) {
  AdamW* optimizer = optimizers_[static_cast<std::size_t>(s)].get();
  FEM_CHECK(optimizer != nullptr, "stage " + std::to_string(s) + " is not on this rank");
  optimizer->step(lr, update, unit);
  each_unit(s, unit, [&](UnitParameters& mine) { parameters_.outdate(mine); });
}

void Update::reload_optimizer(int s, int unit, ir::Lane lane) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    FEM_CHECK(mine.moments_buffer && !mine.moments_buffer->block, "moments are reloaded that were not offloaded");
    mine.moments_buffer->take(pool_, lane);
    over_memory(mine.moments, [&] {
      const std::span<float> both = values(mine.moments);
      std::ranges::copy(values(mine.exp_avg), both.begin());
      std::ranges::copy(values(mine.exp_avg_sq), both.begin() + mine.owned);
    });
  });
}

void Update::offload_optimizer(int s, int unit) {
  each_unit(s, unit, [&](UnitParameters& mine) {
    FEM_CHECK(mine.moments_buffer && mine.moments_buffer->block, "moments are offloaded that are not there");
    over_memory(mine.moments, [&] {
      const std::span<const float> both = values(mine.moments);
      const auto owned = static_cast<std::size_t>(mine.owned);
      std::ranges::copy(both.first(owned), values(mine.exp_avg).begin());
      std::ranges::copy(both.subspan(owned), values(mine.exp_avg_sq).begin());
    });
    mine.moments_buffer->give_back();
  });
}

}  // namespace fem::exec
