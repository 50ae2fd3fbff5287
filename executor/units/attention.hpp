// Causal attention with grouped key and value heads, flash form: scores are never kept (Dao et al. 2022).
#pragma once

#include "executor/units/linear.hpp"

namespace fem::exec {

// q [micro, seq, heads, head_dim]; k and v [micro, seq, kv_heads, head_dim], kv_heads divides heads; query head h uses
// key head h / (heads / kv_heads). Scores are scaled by 1 / sqrt(head_dim).
// y like q; lse fp32 [micro, seq, heads], log-sum-exp of each query's scores.
//
// LibTorch's flash attention returns fresh memory, which is copied from and freed inside the call (HIDDEN in
// ir/units.def).
struct AttentionTensors {
  at::Tensor q, k, v, y, lse;
};
void attention_forward(Sequence& s, const AttentionTensors& t);

// Gradients like q, k and v.
struct AttentionGradients {
  at::Tensor dq, dk, dv;
};
void attention_backward(Sequence& s, const at::Tensor& dy, const AttentionTensors& t,
                        const AttentionGradients& gradients, Arithmetic arithmetic);

}  // namespace fem::exec
