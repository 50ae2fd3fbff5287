#include <ATen/core/LegacyTypeDispatch.h>

#include "executor/error.hpp"
#include "executor/units/cross_entropy.hpp"
#include "executor/units/llama_units.hpp"
#include "executor/units/rms_norm.hpp"

namespace fem::exec {
namespace {

// Positions in the lists of ir/units.def.
namespace param {
enum { norm, weight };
}
namespace slot {
enum { input, rstd, logits, lse, targets };
}
namespace work_slot {
enum { normed, grad_logits, grad_norm };
}

}  // namespace

HeadUnit::HeadUnit(const ir::Settings& settings, Arithmetic arithmetic)
    : declared_(ir::UnitKind::head, settings), dims_(ir::unit_dims(settings)), eps_(settings.model.norm_eps),
      linear_(arithmetic) {}

at::Tensor HeadUnit::forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch,
                             Tensors* saved, LossSum* loss) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  FEM_CHECK(loss != nullptr, "the head adds to a loss sum, none was given");
  FEM_CHECK(batch.targets.scalar_type() == at::kLong && batch.targets.numel() == dims_.tokens,
            "a microbatch holds " + std::to_string(batch.targets.numel()) + " targets, the plan says " +
                std::to_string(dims_.tokens) + " int64");
  const auto targets = batch.targets.contiguous().view(-1);
  auto norm = rms_norm_forward(x.view({dims_.tokens, dims_.hidden}), params[param::norm], eps_);
  auto logits = linear_.forward(norm.y, params[param::weight]);
  norm.y.reset();
  auto result = cross_entropy_forward(logits, targets);
  loss->loss += result.sum.loss;
  loss->tokens += result.sum.tokens;
  if (saved) {
    *saved = {x, norm.rstd, std::move(logits), result.lse, targets};
    declared_.saved.check(*saved);
  }
  return {};
}

at::Tensor HeadUnit::backward_input(std::span<const at::Tensor> params, const at::Tensor&, Tensors* saved,
                                    Tensors* work) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  declared_.saved.check(*saved);
  auto& s = *saved;
  const auto& input = s[slot::input];
  auto dlogits = std::move(s[slot::logits]);
  cross_entropy_backward(dlogits, s[slot::lse], s[slot::targets]);
  auto norm = rms_norm_backward(linear_.backward_input_sum({{dlogits, params[param::weight]}}),
                                input.view({dims_.tokens, dims_.hidden}), s[slot::rstd], params[param::norm]);
  auto dx = norm.dx.to(input.scalar_type()).view(input.sizes());
  *work = {std::move(norm.y), std::move(dlogits), std::move(norm.dw)};
  saved->clear();
  declared_.work.check(*work);
  return dx;
}

void HeadUnit::backward_weight(Tensors* work, std::span<const at::Tensor> grads) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  declared_.work.check(*work);
  const auto& w = *work;
  grads[param::norm].add_(w[work_slot::grad_norm]);
  linear_.backward_weight(grads[param::weight], w[work_slot::grad_logits], w[work_slot::normed]);
  work->clear();
}

}  // namespace fem::exec
