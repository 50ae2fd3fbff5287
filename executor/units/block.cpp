#include <ATen/core/LegacyTypeDispatch.h>

#include "executor/units/attention.hpp"
#include "executor/units/llama_units.hpp"
#include "executor/units/rms_norm.hpp"
#include "executor/units/swiglu.hpp"

namespace fem::exec {
namespace {

// Positions in the lists of ir/units.def.
namespace param {
enum { input_norm, q, k, v, o, post_norm, gate, up, down };
}
namespace slot {
enum { input, input_rstd, q, k, v, attention, attention_lse, mid, mid_rstd, gate, up };
}
namespace work_slot {
enum {
  attention_input, grad_q, grad_k, grad_v, attention, grad_mid, swiglu_input, grad_gate, grad_up, swiglu, grad_output,
  grad_input_norm, grad_post_norm
};
}

}  // namespace

BlockUnit::BlockUnit(const ir::Settings& settings, Arithmetic arithmetic)
    : declared_(ir::UnitKind::block, settings), dims_(ir::unit_dims(settings)), eps_(settings.model.norm_eps),
      linear_(arithmetic), rotary_(dims_.seq_len, dims_.head_dim, settings.model.rope_theta) {}

at::Tensor BlockUnit::forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch&,
                              Tensors* saved, LossSum*) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const auto& d = dims_;
  const auto split = [&](const at::Tensor& t, std::int64_t heads) {
    return t.view({d.micro, d.seq_len, heads, d.head_dim});
  };
  const auto input = x.view({d.tokens, d.hidden});

  auto norm1 = rms_norm_forward(input, params[param::input_norm], eps_);
  const auto q = split(linear_.forward(norm1.y, params[param::q]), d.heads);
  const auto k = split(linear_.forward(norm1.y, params[param::k]), d.kv_heads);
  const auto v = split(linear_.forward(norm1.y, params[param::v]), d.kv_heads);
  norm1.y.reset();
  rotary_.forward(q);
  rotary_.forward(k);
  const auto attention = attention_forward(q, k, v);
  const auto mid = linear_.forward_add(input, attention.y.view({d.tokens, -1}), params[param::o]);

  auto norm2 = rms_norm_forward(mid, params[param::post_norm], eps_);
  const auto gate = linear_.forward(norm2.y, params[param::gate]);
  const auto up = linear_.forward(norm2.y, params[param::up]);
  norm2.y.reset();
  const auto y = linear_.forward_add(mid, swiglu_forward(gate, up), params[param::down]);

  if (saved) {
    *saved = {x, norm1.rstd, q, k, v, attention.y, attention.lse, mid, norm2.rstd, gate, up};
    declared_.saved.check(*saved);
  }
  return y.view({d.micro, d.seq_len, d.hidden});
}

at::Tensor BlockUnit::backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                                     Tensors* work) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  declared_.saved.check(*saved);
  auto& s = *saved;
  const auto& d = dims_;
  const auto rows = [&](const at::Tensor& t) { return t.view({d.tokens, -1}); };
  const auto format = dy.scalar_type();

  // y = mid + down(swiglu(gate(norm(mid)), up(norm(mid))))
  auto dswiglu = linear_.backward_input(rows(dy), params[param::down]);
  auto swiglu = swiglu_backward(dswiglu, std::move(s[slot::gate]), std::move(s[slot::up]));
  dswiglu.reset();
  auto norm2 = rms_norm_backward(linear_.backward_input_sum({{swiglu.dgate, params[param::gate]},
                                                             {swiglu.dup, params[param::up]}}),
                                 s[slot::mid], s[slot::mid_rstd], params[param::post_norm]);
  s[slot::mid].reset();
  auto dmid = norm2.dx.add_(rows(dy)).to(format);
  norm2.dx.reset();

  // mid = x + o(attention(q(norm(x)), k(norm(x)), v(norm(x))))
  auto dattention = linear_.backward_input(dmid, params[param::o]).view(s[slot::q].sizes());
  auto attention = attention_backward(dattention, s[slot::q], s[slot::k], s[slot::v],
                                      {s[slot::attention], s[slot::attention_lse]}, linear_.arithmetic());
  dattention.reset();
  for (const int used : {slot::q, slot::k, slot::v, slot::attention_lse}) s[used].reset();
  rotary_.backward(attention.dq);
  rotary_.backward(attention.dk);
  auto dq = rows(attention.dq), dk = rows(attention.dk), dv = rows(attention.dv);
  auto norm1 = rms_norm_backward(
      linear_.backward_input_sum({{dq, params[param::q]}, {dk, params[param::k]}, {dv, params[param::v]}}),
      rows(s[slot::input]), s[slot::input_rstd], params[param::input_norm]);
  auto dx = norm1.dx.add_(dmid).to(format).view(dy.sizes());

  *work = {norm1.y, dq, dk, dv, rows(s[slot::attention]), dmid, norm2.y, swiglu.dgate, swiglu.dup, swiglu.y, rows(dy),
           norm1.dw, norm2.dw};
  saved->clear();
  declared_.work.check(*work);
  return dx;
}

void BlockUnit::backward_weight(Tensors* work, std::span<const at::Tensor> grads) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  declared_.work.check(*work);
  const auto& w = *work;
  grads[param::input_norm].add_(w[work_slot::grad_input_norm]);
  linear_.backward_weight(grads[param::q], w[work_slot::grad_q], w[work_slot::attention_input]);
  linear_.backward_weight(grads[param::k], w[work_slot::grad_k], w[work_slot::attention_input]);
  linear_.backward_weight(grads[param::v], w[work_slot::grad_v], w[work_slot::attention_input]);
  linear_.backward_weight(grads[param::o], w[work_slot::grad_mid], w[work_slot::attention]);
  grads[param::post_norm].add_(w[work_slot::grad_post_norm]);
  linear_.backward_weight(grads[param::gate], w[work_slot::grad_gate], w[work_slot::swiglu_input]);
  linear_.backward_weight(grads[param::up], w[work_slot::grad_up], w[work_slot::swiglu_input]);
  linear_.backward_weight(grads[param::down], w[work_slot::grad_output], w[work_slot::swiglu]);
  work->clear();
}

}  // namespace fem::exec
