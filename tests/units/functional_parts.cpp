#include "functional_parts.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

namespace fem::exec::test::functional {
namespace {

at::Tensor fp32(const at::Tensor& t) { return t.to(at::kFloat); }

}  // namespace

bool Linear::widen(const at::Tensor& t) const {
  return arithmetic_ == Arithmetic::ThroughFloat32 && t.scalar_type() != at::kFloat;
}

at::Tensor Linear::forward(const at::Tensor& x, const at::Tensor& w) const {
  if (widen(x)) return at::mm(fp32(x), fp32(w).t()).to(x.scalar_type());
  return at::mm(x, w.t());
}

at::Tensor Linear::forward_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w) const {
  if (widen(x)) return fp32(residual).addmm_(fp32(x), fp32(w).t()).to(x.scalar_type());
  return at::addmm(residual, x, w.t());
}

at::Tensor Linear::backward_input(const at::Tensor& dy, const at::Tensor& w) const {
  if (widen(dy)) return at::mm(fp32(dy), fp32(w)).to(dy.scalar_type());
  return at::mm(dy, w);
}

at::Tensor Linear::backward_input_sum(std::initializer_list<Output> outputs) const {
  at::Tensor sum;
  for (const auto& [dy, w] : outputs) {
    if (dy.scalar_type() != at::kFloat && arithmetic_ == Arithmetic::Direct) {
      auto product = at::mm(dy, w);
      sum = sum.defined() ? sum.add_(product) : fp32(product);
    } else if (sum.defined()) {
      sum.addmm_(fp32(dy), fp32(w));
    } else {
      sum = at::mm(fp32(dy), fp32(w));
    }
  }
  return sum;
}

void Linear::backward_weight(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x) const {
  if (dy.scalar_type() != at::kFloat && arithmetic_ == Arithmetic::Direct) {
    dw.add_(at::mm(dy.t(), x));
  } else {
    dw.addmm_(fp32(dy).t(), fp32(x));
  }
}

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

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps) {
  const auto wide = x.to(at::kFloat);
  auto rstd = at::linalg_vector_norm(wide, 2, at::IntArrayRef{-1});
  rstd.square_().div_(x.size(-1)).add_(eps).rsqrt_();
  auto y = at::mul(wide, rstd.unsqueeze(-1)).mul_(w.to(at::kFloat)).to(x.scalar_type());
  return {std::move(y), std::move(rstd)};
}

// With xhat = x rstd and g = dy w: dx = rstd (g - xhat mean(g xhat)), dw = sum over tokens of dy xhat.
RmsNormGradients rms_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& w) {
  const auto wide_w = w.to(at::kFloat);
  const auto column = rstd.unsqueeze(-1);
  auto xhat = at::mul(x.to(at::kFloat), column);
  auto y = at::mul(xhat, wide_w).to(x.scalar_type());
  auto product = at::mul(dy, xhat);
  auto dw = at::sum(product, 0);
  // Not at::mv: its sums depend on the address of w.
  const auto mean = at::sum(product.mul_(wide_w), -1).div_(x.size(-1));
  dy.mul_(wide_w).sub_(xhat.mul_(mean.unsqueeze(-1))).mul_(column);
  return {std::move(dy), std::move(y), std::move(dw)};
}

Rotary::Rotary(std::int64_t seq_len, std::int64_t head_dim, double theta) {
  const auto half = head_dim / 2;
  cos_ = at::empty({seq_len, 1, half}, at::kFloat);
  sin_ = at::empty({seq_len, 1, half}, at::kFloat);
  auto* cos = cos_.mutable_data_ptr<float>();
  auto* sin = sin_.mutable_data_ptr<float>();
  for (std::int64_t p = 0; p < seq_len; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const auto frequency = static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(i) / head_dim));
      const float angle = static_cast<float>(p) * frequency;
      cos[p * half + i] = std::cos(angle);
      sin[p * half + i] = std::sin(angle);
    }
  minus_sin_ = at::neg(sin_);
}

void Rotary::rotate(const at::Tensor& x, const at::Tensor& sin) const {
  const auto half = x.size(-1) / 2;
  if (x.scalar_type() != at::kFloat) {
    const auto wide = x.to(at::kFloat);
    rotate(wide, sin);
    x.copy_(wide);
    return;
  }
  const auto first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  const auto first_sin = at::mul(first, sin);
  first.mul_(cos_).sub_(at::mul(second, sin));
  second.mul_(cos_).add_(first_sin);
}

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate).mul_(up); }

SwigluGradients swiglu_backward(const at::Tensor& dy, at::Tensor gate, at::Tensor up) {
  auto dgate = at::mul(dy, up);
  at::silu_backward_out(dgate, dgate, gate);
  auto activated = at::silu_(gate);
  auto y = up.mul_(activated);
  auto dup = activated.mul_(dy);
  return {std::move(dgate), std::move(dup), std::move(y)};
}

namespace {

// Rows are handled in blocks of about this many elements: the fp32 temporaries stay this small, and in the cache.
constexpr std::int64_t kBlockElements = 1 << 17;

// Calls visit(first row, rows) for each block; the division depends on the vocabulary alone.
template <class Visit>
void for_each_block(const at::Tensor& logits, Visit visit) {
  const auto tokens = logits.size(0);
  const auto rows = std::max<std::int64_t>(1, kBlockElements / logits.size(1));
  for (std::int64_t begin = 0; begin < tokens; begin += rows) visit(begin, std::min(rows, tokens - begin));
}

// Fixed-order sum of the token losses lse - logit[target] over the valid tokens.
LossSum sum_losses(const at::Tensor& lse, const at::Tensor& picked, const at::Tensor& targets) {
  const auto* l = lse.const_data_ptr<float>();
  const auto* x = picked.const_data_ptr<float>();
  const auto* id = targets.const_data_ptr<std::int64_t>();
  LossSum sum;
  for (std::int64_t t = 0; t < targets.numel(); ++t) {
    if (id[t] == kIgnoredTarget) continue;
    sum.loss += static_cast<double>(l[t] - x[t]);
    ++sum.tokens;
  }
  return sum;
}

}  // namespace

CrossEntropyOutput cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets) {
  auto lse = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  for_each_block(logits, [&](std::int64_t begin, std::int64_t rows) {
    const auto block = logits.narrow(0, begin, rows).to(at::kFloat);
    const auto largest = at::amax(block, -1, /*keepdim=*/true);
    auto out = lse.narrow(0, begin, rows);
    at::sum_out(out, at::sub(block, largest).exp_(), -1);
    out.log_().add_(largest.squeeze(-1));
  });
  const auto picked = logits.gather(1, targets.clamp_min(0).unsqueeze(1)).to(at::kFloat);
  return {sum_losses(lse, picked, targets), std::move(lse)};
}

void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& lse, const at::Tensor& targets) {
  const auto ignored = targets.eq(kIgnoredTarget).unsqueeze(1);
  const auto index = targets.clamp_min(0).unsqueeze(1);
  for_each_block(logits, [&](std::int64_t begin, std::int64_t rows) {
    const auto block = logits.narrow(0, begin, rows);
    auto gradient = block.to(at::kFloat);  // block itself in fp32
    gradient.sub_(lse.narrow(0, begin, rows).unsqueeze(1)).exp_();
    gradient.scatter_(1, index.narrow(0, begin, rows), -1.0, "add");
    gradient.masked_fill_(ignored.narrow(0, begin, rows), 0.0);
    if (block.scalar_type() != at::kFloat) block.copy_(gradient);
  });
}

}  // namespace fem::exec::test::functional
