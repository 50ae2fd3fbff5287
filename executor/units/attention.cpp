#include "executor/units/attention.hpp"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace fem::exec {
namespace {

// Keys or values repeated for every query head of their group, [micro, seq, heads, head_dim].
at::Tensor repeat_heads(const at::Tensor& t, std::int64_t heads) {
  const auto group = heads / t.size(2);
  if (group == 1) return t;
  return t.unsqueeze(3).expand({-1, -1, -1, group, -1}).reshape({t.size(0), t.size(1), heads, t.size(3)});
}

// The gradient of repeat_heads.
at::Tensor sum_heads(const at::Tensor& t, std::int64_t kv_heads) {
  const auto group = t.size(2) / kv_heads;
  if (group == 1) return t.contiguous();
  return t.reshape({t.size(0), t.size(1), kv_heads, group, t.size(3)}).sum(3);
}

// [micro, seq, heads, ...] and [micro, heads, seq, ...] are views of one another.
at::Tensor swap(const at::Tensor& t) { return t.transpose(1, 2); }

}  // namespace

AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto heads = q.size(2);
  auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      swap(q), swap(repeat_heads(k, heads)), swap(repeat_heads(v, heads)), 0.0, /*is_causal=*/true);
  return {swap(y).contiguous(), swap(lse).contiguous()};
}

AttentionGradients attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const AttentionOutput& output, Arithmetic arithmetic) {
  const auto format = q.scalar_type();
  const auto work = arithmetic == Arithmetic::ThroughFloat32 ? at::kFloat : format;
  const auto heads = q.size(2), kv_heads = k.size(2);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      swap(dy.to(work)), swap(q.to(work)), swap(repeat_heads(k.to(work), heads)),
      swap(repeat_heads(v.to(work), heads)), swap(output.y.to(work)), swap(output.lse), 0.0, /*is_causal=*/true);
  return {swap(dq).to(format).contiguous(), sum_heads(swap(dk), kv_heads).to(format),
          sum_heads(swap(dv), kv_heads).to(format)};
}

}  // namespace fem::exec
