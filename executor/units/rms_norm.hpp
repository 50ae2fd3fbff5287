// RMS norm with fp32 statistics: y = x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang and Sennrich 2019).
#pragma once

#include "executor/units/sequence.hpp"

namespace fem::exec {

// x [tokens, hidden] and w [hidden] in the compute format; rstd fp32 [tokens], 1 / root mean square of each row of x.
void rms_norm_statistics(Sequence& s, const at::Tensor& x, double eps, at::Tensor rstd);

// y like x, rounded once.
void rms_norm_apply(Sequence& s, const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& w,
                    const at::Tensor& y);

// dy fp32 [tokens, hidden]. y is what the forward wrote, to the last bit; dw fp32 [hidden] is the sum over the tokens;
// dx, in the compute format, is the gradient plus `residual` (like dx; undefined: nothing), rounded once.
struct RmsNormGradients {
  at::Tensor y, dw, dx;
};
void rms_norm_backward(Sequence& s, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                       const at::Tensor& w, const at::Tensor& residual, const RmsNormGradients& gradients);

}  // namespace fem::exec
