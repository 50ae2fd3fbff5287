// The element-wise part of SwiGLU: y = silu(gate) * up (Shazeer 2020).
#pragma once

#include <ATen/core/Tensor.h>

namespace fem::exec {

// gate, up and the result [tokens, intermediate].
at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up);

// silu is computed again from gate. The memory of gate and up is consumed: the results lie in it.
// y is what the forward returned, to the last bit.
struct SwigluGradients {
  at::Tensor dgate, dup, y;
};
SwigluGradients swiglu_backward(const at::Tensor& dy, at::Tensor gate, at::Tensor up);

}  // namespace fem::exec
