#include "executor/units/rms_norm.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

namespace fem::exec {

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps) {
  const auto wide = x.to(at::kFloat);
  auto rstd = at::linalg_vector_norm(wide, 2, at::IntArrayRef{-1});
  rstd.square_().div_(x.size(-1)).add_(eps).rsqrt_();
  auto y = at::mul(wide, rstd.unsqueeze(-1)).mul_(w.to(at::kFloat)).to(x.scalar_type());
  return {std::move(y), std::move(rstd)};
}

// With xhat = x rstd and g = dy w: dx = rstd (g - xhat mean(g xhat)), dw = sum over tokens of dy xhat.
RmsNormGradients rms_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& w) {
  const auto wide_w = w.to(at::kFloat);
  const auto column = rstd.unsqueeze(-1);
  auto xhat = at::mul(x.to(at::kFloat), column);
  auto y = at::mul(xhat, wide_w).to(x.scalar_type());
  auto product = at::mul(dy, xhat);
  auto dw = at::sum(product, 0);
  // Not at::mv: its sums depend on the address of w.
  const auto mean = at::sum(product.mul_(wide_w), -1).div_(x.size(-1));
  dy.mul_(wide_w).sub_(xhat.mul_(mean.unsqueeze(-1))).mul_(column);
  return {std::move(dy), std::move(y), std::move(dw)};
}

}  // namespace fem::exec
