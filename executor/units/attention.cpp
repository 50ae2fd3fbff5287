#include "executor/units/attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/sum.h>

namespace fem::exec {
namespace {

// [micro, seq, heads, ...] and [micro, heads, seq, ...] are views of one another.
at::Tensor swap(const at::Tensor& t) { return t.transpose(1, 2); }

// A tensor as flash attention takes it: [micro, heads, seq, head_dim] in the format `work`, keys and values repeated
// for every query head of their group. A copy in scratch where t itself is not that; fill() writes the copy.
class Operand {
 public:
  Operand(Sequence& s, const at::Tensor& t, std::int64_t heads, at::ScalarType work) {
    const auto group = heads / t.size(2);
    at::Tensor whole = t;
    if (group != 1 || t.scalar_type() != work) {
      whole = s.scratch({t.size(0), t.size(1), heads, t.size(3)}, work);
      copy_ = whole.view({t.size(0), t.size(1), t.size(2), group, t.size(3)});
      source_ = t.unsqueeze(3).expand(copy_.sizes());
    }
    value_ = swap(whole);
  }
  void fill() const {
    if (copy_.defined()) copy_.copy_(source_);
  }
  const at::Tensor& operator*() const { return value_; }

 private:
  at::Tensor value_, copy_, source_;
};

// Writes the gradient of a repeated tensor, fresh [micro, heads, seq, head_dim], into that of the tensor: sums over the
// heads of a group. `sum` is scratch where the formats differ.
void sum_heads(const at::Tensor& repeated, const at::Tensor& gradient, at::Tensor sum) {
  const auto whole = swap(repeated);
  const auto group = whole.size(2) / gradient.size(2);
  if (group == 1) {
    gradient.copy_(whole);
    return;
  }
  at::sum_out(sum, whole.view({whole.size(0), whole.size(1), gradient.size(2), group, whole.size(3)}),
              at::IntArrayRef{3});
  if (!sum.is_same(gradient)) gradient.copy_(sum);
}

}  // namespace

void attention_forward(Sequence& s, const AttentionTensors& t) {
  const auto heads = t.q.size(2);
  const auto format = t.q.scalar_type();
  const auto frame = s.frame();
  s.add([q = swap(t.q), k = Operand(s, t.k, heads, format), v = Operand(s, t.v, heads, format), y = t.y, lse = t.lse] {
    k.fill();
    v.fill();
    const auto [fresh_y, fresh_lse] =
        at::_scaled_dot_product_flash_attention_for_cpu(q, *k, *v, 0.0, /*is_causal=*/true);
    y.copy_(swap(fresh_y));
    lse.copy_(swap(fresh_lse));
  });
}

void attention_backward(Sequence& s, const at::Tensor& dy, const AttentionTensors& t,
                        const AttentionGradients& gradients, Arithmetic arithmetic) {
  const auto work = arithmetic == Arithmetic::ThroughFloat32 ? at::kFloat : t.q.scalar_type();
  const auto heads = t.q.size(2);
  const auto frame = s.frame();
  const Operand q(s, t.q, heads, work), k(s, t.k, heads, work), v(s, t.v, heads, work), y(s, t.y, heads, work),
      grad(s, dy, heads, work);
  at::Tensor sum;
  if (heads != t.k.size(2) && work != t.k.scalar_type()) sum = s.scratch(t.k.sizes(), work);
  s.add([q, k, v, y, grad, lse = swap(t.lse), g = gradients, sum] {
    for (const auto* operand : {&q, &k, &v, &y, &grad}) operand->fill();
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        *grad, *q, *k, *v, *y, lse, 0.0, /*is_causal=*/true);
    g.dq.copy_(swap(dq));
    sum_heads(dk, g.dk, sum.defined() ? sum : g.dk);
    sum_heads(dv, g.dv, sum.defined() ? sum : g.dv);
  });
}

}  // namespace fem::exec
