#include "functional.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/embedding.h>

namespace fem::exec::test::functional {
namespace {

class EmbeddingUnit final : public Unit {
 public:
  explicit EmbeddingUnit(const ir::Settings& settings);
  at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch, Tensors* saved,
                     LossSum* loss) const override;
  at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                            Tensors* work) const override;
  void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const override;

 private:
  ir::UnitDims dims_;
};

EmbeddingUnit::EmbeddingUnit(const ir::Settings& settings)
    : dims_(ir::unit_dims(settings)) {}

at::Tensor EmbeddingUnit::forward(std::span<const at::Tensor> params, const at::Tensor&, const Microbatch& batch,
                                  Tensors* saved, LossSum*) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (saved) {
    *saved = {batch.tokens};
  }
  return at::embedding(params[0], batch.tokens.view({dims_.micro, dims_.seq_len}));
}

at::Tensor EmbeddingUnit::backward_input(std::span<const at::Tensor>, const at::Tensor& dy, Tensors* saved,
                                         Tensors* work) const {
  *work = {std::move((*saved)[0]), dy};
  saved->clear();
  return {};
}

void EmbeddingUnit::backward_weight(Tensors* work, std::span<const at::Tensor> grads) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto& tokens = (*work)[0];
  const auto& dy = (*work)[1];
  grads[0].index_add_(0, tokens.view(-1), dy.view({dims_.tokens, dims_.hidden}).to(at::kFloat));
  work->clear();
}

class BlockUnit final : public Unit {
 public:
  BlockUnit(const ir::Settings& settings, Arithmetic arithmetic);
  at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch, Tensors* saved,
                     LossSum* loss) const override;
  at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                            Tensors* work) const override;
  void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const override;

 private:
  ir::UnitDims dims_;
  double eps_;
  Linear linear_;
  Rotary rotary_;
};

// Positions in the lists of ir/units.def.
namespace block_param {
enum { input_norm, q, k, v, o, post_norm, gate, up, down };
}
namespace block_slot {
enum { input, input_rstd, q, k, v, attention, attention_lse, mid, mid_rstd, gate, up };
}
namespace block_work {
enum {
  attention_input, grad_q, grad_k, grad_v, attention, grad_mid, swiglu_input, grad_gate, grad_up, swiglu, grad_output,
  grad_input_norm, grad_post_norm
};
}


BlockUnit::BlockUnit(const ir::Settings& settings, Arithmetic arithmetic)
    : dims_(ir::unit_dims(settings)), eps_(settings.model.norm_eps),
      linear_(arithmetic), rotary_(dims_.seq_len, dims_.head_dim, settings.model.rope_theta) {}

at::Tensor BlockUnit::forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch&,
                              Tensors* saved, LossSum*) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto& d = dims_;
  const auto split = [&](const at::Tensor& t, std::int64_t heads) {
    return t.view({d.micro, d.seq_len, heads, d.head_dim});
  };
  const auto input = x.view({d.tokens, d.hidden});

  auto norm1 = rms_norm_forward(input, params[block_param::input_norm], eps_);
  const auto q = split(linear_.forward(norm1.y, params[block_param::q]), d.heads);
  const auto k = split(linear_.forward(norm1.y, params[block_param::k]), d.kv_heads);
  const auto v = split(linear_.forward(norm1.y, params[block_param::v]), d.kv_heads);
  norm1.y.reset();
  rotary_.forward(q);
  rotary_.forward(k);
  const auto attention = attention_forward(q, k, v);
  const auto mid = linear_.forward_add(input, attention.y.view({d.tokens, -1}), params[block_param::o]);

  auto norm2 = rms_norm_forward(mid, params[block_param::post_norm], eps_);
  const auto gate = linear_.forward(norm2.y, params[block_param::gate]);
  const auto up = linear_.forward(norm2.y, params[block_param::up]);
  norm2.y.reset();
  const auto y = linear_.forward_add(mid, swiglu_forward(gate, up), params[block_param::down]);

  if (saved) {
    *saved = {x, norm1.rstd, q, k, v, attention.y, attention.lse, mid, norm2.rstd, gate, up};
  }
  return y.view({d.micro, d.seq_len, d.hidden});
}

at::Tensor BlockUnit::backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                                     Tensors* work) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  auto& s = *saved;
  const auto& d = dims_;
  const auto rows = [&](const at::Tensor& t) { return t.view({d.tokens, -1}); };
  const auto format = dy.scalar_type();

  // y = mid + down(swiglu(gate(norm(mid)), up(norm(mid))))
  auto dswiglu = linear_.backward_input(rows(dy), params[block_param::down]);
  auto swiglu = swiglu_backward(dswiglu, std::move(s[block_slot::gate]), std::move(s[block_slot::up]));
  dswiglu.reset();
  auto norm2 = rms_norm_backward(linear_.backward_input_sum({{swiglu.dgate, params[block_param::gate]},
                                                             {swiglu.dup, params[block_param::up]}}),
                                 s[block_slot::mid], s[block_slot::mid_rstd], params[block_param::post_norm]);
  s[block_slot::mid].reset();
  auto dmid = norm2.dx.add_(rows(dy)).to(format);
  norm2.dx.reset();

  // mid = x + o(attention(q(norm(x)), k(norm(x)), v(norm(x))))
  auto dattention = linear_.backward_input(dmid, params[block_param::o]).view(s[block_slot::q].sizes());
  auto attention = attention_backward(dattention, s[block_slot::q], s[block_slot::k], s[block_slot::v],
                                      {s[block_slot::attention], s[block_slot::attention_lse]}, linear_.arithmetic());
  dattention.reset();
  for (const int used : {block_slot::q, block_slot::k, block_slot::v, block_slot::attention_lse}) s[used].reset();
  rotary_.backward(attention.dq);
  rotary_.backward(attention.dk);
  auto dq = rows(attention.dq), dk = rows(attention.dk), dv = rows(attention.dv);
  auto norm1 = rms_norm_backward(
      linear_.backward_input_sum(
          {{dq, params[block_param::q]}, {dk, params[block_param::k]}, {dv, params[block_param::v]}}),
      rows(s[block_slot::input]), s[block_slot::input_rstd], params[block_param::input_norm]);
  auto dx = norm1.dx.add_(dmid).to(format).view(dy.sizes());

  *work = {norm1.y, dq, dk, dv, rows(s[block_slot::attention]), dmid, norm2.y, swiglu.dgate, swiglu.dup, swiglu.y,
           rows(dy), norm1.dw, norm2.dw};
  saved->clear();
  return dx;
}

void BlockUnit::backward_weight(Tensors* work, std::span<const at::Tensor> grads) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto& w = *work;
  grads[block_param::input_norm].add_(w[block_work::grad_input_norm]);
  linear_.backward_weight(grads[block_param::q], w[block_work::grad_q], w[block_work::attention_input]);
  linear_.backward_weight(grads[block_param::k], w[block_work::grad_k], w[block_work::attention_input]);
  linear_.backward_weight(grads[block_param::v], w[block_work::grad_v], w[block_work::attention_input]);
  linear_.backward_weight(grads[block_param::o], w[block_work::grad_mid], w[block_work::attention]);
  grads[block_param::post_norm].add_(w[block_work::grad_post_norm]);
  linear_.backward_weight(grads[block_param::gate], w[block_work::grad_gate], w[block_work::swiglu_input]);
  linear_.backward_weight(grads[block_param::up], w[block_work::grad_up], w[block_work::swiglu_input]);
  linear_.backward_weight(grads[block_param::down], w[block_work::grad_output], w[block_work::swiglu]);
  work->clear();
}

class HeadUnit final : public Unit {
 public:
  HeadUnit(const ir::Settings& settings, Arithmetic arithmetic);
  at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch, Tensors* saved,
                     LossSum* loss) const override;
  at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                            Tensors* work) const override;
  void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const override;

 private:
  ir::UnitDims dims_;
  double eps_;
  Linear linear_;
};

// Positions in the lists of ir/units.def.
namespace head_param {
enum { norm, weight };
}
namespace head_slot {
enum { input, rstd, logits, lse, targets };
}
namespace head_work {
enum { normed, grad_logits, grad_norm };
}


HeadUnit::HeadUnit(const ir::Settings& settings, Arithmetic arithmetic)
    : dims_(ir::unit_dims(settings)), eps_(settings.model.norm_eps),
      linear_(arithmetic) {}

at::Tensor HeadUnit::forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch,
                             Tensors* saved, LossSum* loss) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto targets = batch.targets.contiguous().view(-1);
  auto norm = rms_norm_forward(x.view({dims_.tokens, dims_.hidden}), params[head_param::norm], eps_);
  auto logits = linear_.forward(norm.y, params[head_param::weight]);
  norm.y.reset();
  auto result = cross_entropy_forward(logits, targets);
  loss->loss += result.sum.loss;
  loss->tokens += result.sum.tokens;
  if (saved) {
    *saved = {x, norm.rstd, std::move(logits), result.lse, targets};
  }
  return {};
}

at::Tensor HeadUnit::backward_input(std::span<const at::Tensor> params, const at::Tensor&, Tensors* saved,
                                    Tensors* work) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  auto& s = *saved;
  const auto& input = s[head_slot::input];
  auto dlogits = std::move(s[head_slot::logits]);
  cross_entropy_backward(dlogits, s[head_slot::lse], s[head_slot::targets]);
  auto norm = rms_norm_backward(linear_.backward_input_sum({{dlogits, params[head_param::weight]}}),
                                input.view({dims_.tokens, dims_.hidden}), s[head_slot::rstd], params[head_param::norm]);
  auto dx = norm.dx.to(input.scalar_type()).view(input.sizes());
  *work = {std::move(norm.y), std::move(dlogits), std::move(norm.dw)};
  saved->clear();
  return dx;
}

void HeadUnit::backward_weight(Tensors* work, std::span<const at::Tensor> grads) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto& w = *work;
  grads[head_param::norm].add_(w[head_work::grad_norm]);
  linear_.backward_weight(grads[head_param::weight], w[head_work::grad_logits], w[head_work::normed]);
  work->clear();
}

}  // namespace

std::unique_ptr<Unit> make_unit(const ir::Settings& settings, std::int64_t unit, Arithmetic arithmetic) {
  switch (ir::unit_kind(settings, unit)) {
    case ir::UnitKind::embedding: return std::make_unique<EmbeddingUnit>(settings);
    case ir::UnitKind::block: return std::make_unique<BlockUnit>(settings, arithmetic);
    case ir::UnitKind::head: return std::make_unique<HeadUnit>(settings, arithmetic);
  }
  return nullptr;
}

}  // namespace fem::exec::test::functional
