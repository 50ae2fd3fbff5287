#include "executor/units/attention.hpp"
#include "executor/units/llama_units.hpp"
#include "executor/units/rms_norm.hpp"
#include "executor/units/rotary.hpp"
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

// The block's tensors, and what its phases share.
class BlockRecorder {
 public:
  explicit BlockRecorder(const Recording& r)
      : r_(r), d_(r.memory.dims()), eps_(r.settings.model.norm_eps),
        rotary_(r.rotary ? *r.rotary : make_rotary(r.settings, r.params[0].device())),
        attention_dropout_(make_dropout(r, DropoutPlace::attention)),
        swiglu_dropout_(make_dropout(r, DropoutPlace::swiglu)) {}

  // x -> mid, with what lies between: q, k, v, the attention and the statistics of the norm.
  void attention_half(Sequence& s) const {
    const auto input = saved(slot::input, d_.hidden);
    rms_norm_statistics(s, input, eps_, statistics(slot::input_rstd));
    {
      const auto frame = s.frame();
      const auto normed = scratch(s, d_.hidden);
      rms_norm_apply(s, input, statistics(slot::input_rstd), param(param::input_norm), normed);
      r_.linear.forward(s, normed, param(param::q), saved(slot::q, d_.heads * d_.head_dim));
      r_.linear.forward(s, normed, param(param::k), saved(slot::k, d_.kv_heads * d_.head_dim));
      r_.linear.forward(s, normed, param(param::v), saved(slot::v, d_.kv_heads * d_.head_dim));
    }
    rotary_.forward(s, attention_tensors().q);
    rotary_.forward(s, attention_tensors().k);
    attention(s);
    r_.linear.forward_add(s, input, saved(slot::attention, d_.heads * d_.head_dim), param(param::o),
                          attention_dropout_, mid());
    rms_norm_statistics(s, mid(), eps_, statistics(slot::mid_rstd));
  }

  // q, k, v -> attention and its log-sum-exp.
  void attention(Sequence& s) const { attention_forward(s, attention_tensors()); }

  // mid and its statistics -> gate and up.
  void swiglu_factors(Sequence& s) const {
    const auto frame = s.frame();
    const auto normed = scratch(s, d_.hidden);
    rms_norm_apply(s, mid(), statistics(slot::mid_rstd), param(param::post_norm), normed);
    r_.linear.forward(s, normed, param(param::gate), saved(slot::gate, d_.intermediate));
    r_.linear.forward(s, normed, param(param::up), saved(slot::up, d_.intermediate));
  }

  // gate, up, mid -> y.
  void output(Sequence& s) const {
    const auto frame = s.frame();
    const auto swiglu = scratch(s, d_.intermediate);
    swiglu_forward(s, saved(slot::gate, d_.intermediate), saved(slot::up, d_.intermediate), swiglu);
    r_.linear.forward_add(s, mid(), swiglu, param(param::down), swiglu_dropout_, r_.memory.y());
  }

  // y = mid + drop(down(swiglu(gate(norm(mid)), up(norm(mid))))): dy -> gradient of mid.
  void backward_swiglu_half(Sequence& s) const {
    const auto dy = work(work_slot::grad_output, d_.hidden);
    const auto dgate = work(work_slot::grad_gate, d_.intermediate), dup = work(work_slot::grad_up, d_.intermediate);
    {
      const auto frame = s.frame();
      const auto dswiglu = scratch(s, d_.intermediate);
      backward_dropped(s, dy, swiglu_dropout_, param(param::down), dswiglu);
      swiglu_backward(s, dswiglu, saved(slot::gate, d_.intermediate), saved(slot::up, d_.intermediate), dgate);
    }
    const auto frame = s.frame();
    const auto sum = s.scratch({d_.tokens, d_.hidden}, at::kFloat);
    r_.linear.backward_input_sum(s, {{dgate, param(param::gate)}, {dup, param(param::up)}}, sum);
    rms_norm_backward(s, sum, mid(), statistics(slot::mid_rstd), param(param::post_norm), dy,
                      {work(work_slot::swiglu_input, d_.hidden), norm_gradient(work_slot::grad_post_norm),
                       work(work_slot::grad_mid, d_.hidden)});
  }

  // mid = x + drop(o(attention(q(norm(x)), k(norm(x)), v(norm(x))))): gradient of mid -> dx.
  void backward_attention_half(Sequence& s) const {
    const auto dmid = work(work_slot::grad_mid, d_.hidden);
    const auto dq = work(work_slot::grad_q, d_.heads * d_.head_dim);
    const auto dk = work(work_slot::grad_k, d_.kv_heads * d_.head_dim);
    const auto dv = work(work_slot::grad_v, d_.kv_heads * d_.head_dim);
    const AttentionGradients by_head{heads(dq), heads(dk), heads(dv)};
    {
      const auto frame = s.frame();
      const auto dattention = scratch(s, d_.heads * d_.head_dim);
      backward_dropped(s, dmid, attention_dropout_, param(param::o), dattention);
      attention_backward(s, heads(dattention), attention_tensors(), by_head, r_.linear.arithmetic());
    }
    rotary_.backward(s, by_head.dq);
    rotary_.backward(s, by_head.dk);
    const auto frame = s.frame();
    const auto sum = s.scratch({d_.tokens, d_.hidden}, at::kFloat);
    r_.linear.backward_input_sum(s, {{dq, param(param::q)}, {dk, param(param::k)}, {dv, param(param::v)}}, sum);
    rms_norm_backward(s, sum, saved(slot::input, d_.hidden), statistics(slot::input_rstd), param(param::input_norm),
                      dmid,
                      {work(work_slot::attention_input, d_.hidden), norm_gradient(work_slot::grad_input_norm),
                       r_.memory.dx()});
  }

  void weight_gradients(Sequence& s) const {
    const auto product = [&](int parameter, int gradient, int input) {
      const auto &w = param(parameter), &dw = grad(parameter);
      r_.linear.backward_weight(s, dw, work(gradient, w.size(0)), work(input, w.size(1)));
    };
    const auto dropped_product = [&](int parameter, int gradient, const Dropout& dropout, int input) {
      const auto frame = s.frame();
      const auto &w = param(parameter), &dw = grad(parameter);
      r_.linear.backward_weight(s, dw, dropped(s, work(gradient, d_.hidden), dropout), work(input, w.size(1)));
    };
    const auto norm = [&](int parameter, int row) {
      s.add([dw = grad(parameter), sum = norm_gradient(row)]() mutable { dw.add_(sum); });
    };
    norm(param::input_norm, work_slot::grad_input_norm);
    product(param::q, work_slot::grad_q, work_slot::attention_input);
    product(param::k, work_slot::grad_k, work_slot::attention_input);
    product(param::v, work_slot::grad_v, work_slot::attention_input);
    dropped_product(param::o, work_slot::grad_mid, attention_dropout_, work_slot::attention);
    norm(param::post_norm, work_slot::grad_post_norm);
    product(param::gate, work_slot::grad_gate, work_slot::swiglu_input);
    product(param::up, work_slot::grad_up, work_slot::swiglu_input);
    dropped_product(param::down, work_slot::grad_output, swiglu_dropout_, work_slot::swiglu);
  }

 private:
  // The gradient of drop(z) -> the gradient of z, in scratch; where nothing is ever dropped, the tensor itself.
  at::Tensor dropped(Sequence& s, const at::Tensor& gradient, const Dropout& dropout) const {
    if (!dropout.configured()) return gradient;
    const auto masked = scratch(s, d_.hidden);
    s.add([gradient, masked, dropout] { dropout.apply(gradient, masked); });
    return masked;
  }
  // y = residual + drop(x w^T): dy -> dx.
  void backward_dropped(Sequence& s, const at::Tensor& dy, const Dropout& dropout, const at::Tensor& w,
                        const at::Tensor& dx) const {
    const auto frame = s.frame();
    r_.linear.backward_input(s, dropped(s, dy, dropout), w, dx);
  }
  const at::Tensor& param(int index) const { return r_.params[static_cast<std::size_t>(index)]; }
  const at::Tensor& grad(int index) const { return r_.grads[static_cast<std::size_t>(index)]; }
  at::Tensor saved(int index, std::int64_t columns) const {
    return r_.memory.saved(static_cast<std::size_t>(index), {d_.tokens, columns});
  }
  at::Tensor work(int index, std::int64_t columns) const {
    return r_.memory.work(static_cast<std::size_t>(index), {d_.tokens, columns});
  }
  at::Tensor statistics(int index) const { return r_.memory.saved(static_cast<std::size_t>(index), {d_.tokens}); }
  at::Tensor norm_gradient(int index) const { return r_.memory.work(static_cast<std::size_t>(index), {d_.hidden}); }
  at::Tensor mid() const { return saved(slot::mid, d_.hidden); }
  at::Tensor scratch(Sequence& s, std::int64_t columns) const {
    return s.scratch({d_.tokens, columns}, r_.memory.compute());
  }
  at::Tensor heads(const at::Tensor& t) const { return t.view({d_.micro, d_.seq_len, -1, d_.head_dim}); }
  AttentionTensors attention_tensors() const {
    const auto lse = r_.memory.saved(slot::attention_lse, {d_.micro, d_.seq_len, d_.heads});
    return {heads(saved(slot::q, d_.heads * d_.head_dim)), heads(saved(slot::k, d_.kv_heads * d_.head_dim)),
            heads(saved(slot::v, d_.kv_heads * d_.head_dim)),
            heads(saved(slot::attention, d_.heads * d_.head_dim)), lse};
  }

  const Recording& r_;
  ir::UnitDims d_;
  double eps_;
  Rotary rotary_;
  Dropout attention_dropout_, swiglu_dropout_;
};

}  // namespace

void record_block(const Recording& r) {
  const BlockRecorder block(r);
  block.attention_half(r.phases.forward);
  block.swiglu_factors(r.phases.forward);
  block.output(r.phases.forward);

  block.attention_half(r.phases.recompute);
  block.swiglu_factors(r.phases.recompute);

  block.attention(r.phases.recompute_cheap);
  block.swiglu_factors(r.phases.recompute_cheap);

  block.backward_swiglu_half(r.phases.backward_input);
  block.backward_attention_half(r.phases.backward_input);
  block.weight_gradients(r.phases.backward_weight);
}

}  // namespace fem::exec
