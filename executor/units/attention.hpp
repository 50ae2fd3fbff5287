// Causal attention with grouped key and value heads, flash form: scores are never kept (Dao et al. 2022).
#pragma once

#include <ATen/core/Tensor.h>

#include "executor/units/linear.hpp"

namespace fem::exec {

// q [micro, seq, heads, head_dim]; k and v [micro, seq, kv_heads, head_dim], kv_heads divides heads; query head h uses
// key head h / (heads / kv_heads). Scores are scaled by 1 / sqrt(head_dim).
// y [micro, seq, heads, head_dim] contiguous, like q; lse fp32 [micro, seq, heads], log-sum-exp of each query's scores.
struct AttentionOutput {
  at::Tensor y, lse;
};
AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Fresh contiguous tensors of the shapes of q, k and v.
struct AttentionGradients {
  at::Tensor dq, dk, dv;
};
AttentionGradients attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const AttentionOutput& output, Arithmetic arithmetic);

}  // namespace fem::exec
