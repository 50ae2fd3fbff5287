#include "executor/units/swiglu.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

namespace fem::exec {

void swiglu_forward(Sequence& s, const at::Tensor& gate, const at::Tensor& up, at::Tensor y) {
  s.add([gate, up, y]() mutable {
    at::silu_out(y, gate);
    y.mul_(up);
  });
}

void swiglu_backward(Sequence& s, const at::Tensor& dy, at::Tensor gate, at::Tensor up, at::Tensor dgate) {
  s.add([dy, gate, up, dgate]() mutable {
    at::mul_out(dgate, dy, up);
    at::silu_backward_out(dgate, dgate, gate);
    at::silu_(gate);
    up.mul_(gate);
    gate.mul_(dy);
  });
}

}  // namespace fem::exec
