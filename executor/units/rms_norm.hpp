// RMS norm with fp32 statistics: y = x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang and Sennrich 2019).
#pragma once

#include <ATen/core/Tensor.h>

namespace fem::exec {

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

}  // namespace fem::exec
