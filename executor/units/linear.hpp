// The products of a linear layer y = x w^T, with x [tokens, in], w [out, in], y [tokens, out] as in torch.nn.Linear.
#pragma once

#include <initializer_list>

#include "executor/units/arithmetic.hpp"
#include "executor/units/dropout.hpp"
#include "executor/units/sequence.hpp"

namespace fem::exec {

// Records the five products of a linear layer; a value, the same for all units of a machine and format. Results are
// written to memory of the caller, widened operands lie in the sequence's scratch.
class Linear {
 public:
  explicit Linear(Arithmetic arithmetic) : arithmetic_(arithmetic) {}
  Arithmetic arithmetic() const { return arithmetic_; }

  // y = x w^T, all in one format.
  void forward(Sequence& s, const at::Tensor& x, const at::Tensor& w, at::Tensor y) const;

  // y = residual + drop(x w^T); residual [tokens, out].
  void forward_add(Sequence& s, const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w,
                   const Dropout& dropout, at::Tensor y) const;

  // dx = dy w in the format of dy: the gradient of x.
  void backward_input(Sequence& s, const at::Tensor& dy, const at::Tensor& w, at::Tensor dx) const;

  // sum = all dy_i w_i, fp32: the gradient of an x that feeds several layers.
  struct Output {
    const at::Tensor &dy, &w;
  };
  void backward_input_sum(Sequence& s, std::initializer_list<Output> outputs, at::Tensor sum) const;

  // dw += dy^T x, dw fp32 [out, in].
  void backward_weight(Sequence& s, at::Tensor dw, const at::Tensor& dy, const at::Tensor& x) const;

 private:
  bool widen(const at::Tensor& t) const;
  bool direct_narrow(const at::Tensor& t) const;
  Arithmetic arithmetic_;
};

}  // namespace fem::exec
