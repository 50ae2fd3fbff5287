// The parts of a unit as compositions of LibTorch's functional operators, each of which allocates its result: what the
// units' own code must equal to the last bit.
#pragma once

#include <initializer_list>
#include <utility>

#include <ATen/core/Tensor.h>

#include "executor/units/unit.hpp"

namespace fem::exec::test::functional {

class Linear {
 public:
  explicit Linear(Arithmetic arithmetic) : arithmetic_(arithmetic) {}
  Arithmetic arithmetic() const { return arithmetic_; }

  // x w^T in the format of x.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& w) const;

  // residual + x w^T in the format of x; residual [tokens, out].
  at::Tensor forward_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w) const;

  // dy w in the format of dy: the gradient of x.
  at::Tensor backward_input(const at::Tensor& dy, const at::Tensor& w) const;

  // Sum of dy_i w_i in fp32: the gradient of an x that feeds several layers.
  struct Output {
    const at::Tensor &dy, &w;
  };
  at::Tensor backward_input_sum(std::initializer_list<Output> outputs) const;

  // dw += dy^T x, dw fp32 [out, in].
  void backward_weight(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x) const;

 private:
  bool widen(const at::Tensor& t) const;
  Arithmetic arithmetic_;
};

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

// x [tokens, hidden] and w [hidden] in the compute format; y like x, rounded once; rstd fp32 [tokens].
struct RmsNormOutput {
  at::Tensor y, rstd;
};
RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps);

// dy fp32 [tokens, hidden] is consumed: dx is written into it. y is what the forward returned, to the last bit;
// dw fp32 [hidden] is the sum over the tokens.
struct RmsNormGradients {
  at::Tensor dx, y, dw;
};
RmsNormGradients rms_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& w);

class Rotary {
 public:
  // Fills the table of positions 0 .. seq_len-1. An odd head_dim is an error.
  Rotary(std::int64_t seq_len, std::int64_t head_dim, double theta);

  // Rotates x [micro, seq_len, heads, head_dim] in place.
  void forward(const at::Tensor& x) const { rotate(x, sin_); }
  // The gradient: the rotation back, in place.
  void backward(const at::Tensor& dx) const { rotate(dx, minus_sin_); }

 private:
  void rotate(const at::Tensor& x, const at::Tensor& sin) const;
  at::Tensor cos_, sin_, minus_sin_;  // fp32 [seq_len, 1, head_dim/2]
};

// gate, up and the result [tokens, intermediate].
at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up);

// silu is computed again from gate. The memory of gate and up is consumed: the results lie in it.
// y is what the forward returned, to the last bit.
struct SwigluGradients {
  at::Tensor dgate, dup, y;
};
SwigluGradients swiglu_backward(const at::Tensor& dy, at::Tensor gate, at::Tensor up);

struct CrossEntropyOutput {
  LossSum sum;
  at::Tensor lse;
};
CrossEntropyOutput cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets);

// Turns logits into the gradient of the sum, softmax - one-hot, in place; rows of ignored targets become 0.
void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& lse, const at::Tensor& targets);

}  // namespace fem::exec::test::functional
