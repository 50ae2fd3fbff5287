// The products of a linear layer y = x w^T, with x [tokens, in], w [out, in], y [tokens, out] as in torch.nn.Linear.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>

#include <ATen/core/Tensor.h>

namespace fem::exec {

// How a machine multiplies matrices of the compute format. Direct: in that format. ThroughFloat32: operands are
// widened, multiplied in fp32 and the result rounded once; for bf16 on CPUs without bf16 instructions, where at::mm in
// bf16 is more than ten times slower than in fp32. For fp32 both are the same thing.
enum class Arithmetic : std::uint8_t { Direct, ThroughFloat32 };

// Asks the library what this machine does well. Results differ in rounding between the two, so ask once per unit.
Arithmetic choose_arithmetic(at::ScalarType compute);

// The five products of a linear layer; a value, the same for all units of a machine and format.
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

}  // namespace fem::exec
