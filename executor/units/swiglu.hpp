// The element-wise part of SwiGLU: y = silu(gate) * up (Shazeer 2020).
#pragma once

#include "executor/units/sequence.hpp"

namespace fem::exec {

// All [tokens, intermediate].
void swiglu_forward(Sequence& s, const at::Tensor& gate, const at::Tensor& up, at::Tensor y);

// silu is computed again from gate. Afterwards the memory of gate holds dup, and that of up holds y, which is what the
// forward wrote, to the last bit.
void swiglu_backward(Sequence& s, const at::Tensor& dy, at::Tensor gate, at::Tensor up, at::Tensor dgate);

}  // namespace fem::exec
