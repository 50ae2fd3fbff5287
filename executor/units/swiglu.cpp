#include "executor/units/swiglu.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

namespace fem::exec {

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate).mul_(up); }

SwigluGradients swiglu_backward(const at::Tensor& dy, at::Tensor gate, at::Tensor up) {
  auto dgate = at::mul(dy, up);
  at::silu_backward_out(dgate, dgate, gate);
  auto activated = at::silu_(gate);
  auto y = up.mul_(activated);
  auto dup = activated.mul_(dy);
  return {std::move(dgate), std::move(dup), std::move(y)};
}

}  // namespace fem::exec
