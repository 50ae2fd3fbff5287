#include "executor/units/rotary.hpp"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>

#include "executor/error.hpp"

namespace fem::exec {

Rotary::Rotary(std::int64_t seq_len, std::int64_t head_dim, double theta) {
  FEM_CHECK(head_dim % 2 == 0, "rotary embedding needs an even head_dim, not " + std::to_string(head_dim));
  const auto half = head_dim / 2;
  cos_ = at::empty({seq_len, 1, half}, at::kFloat);
  sin_ = at::empty({seq_len, 1, half}, at::kFloat);
  auto* cos = cos_.mutable_data_ptr<float>();
  auto* sin = sin_.mutable_data_ptr<float>();
  for (std::int64_t p = 0; p < seq_len; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const auto frequency = static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(i) / head_dim));
      const float angle = static_cast<float>(p) * frequency;
      cos[p * half + i] = std::cos(angle);
      sin[p * half + i] = std::sin(angle);
    }
  minus_sin_ = at::neg(sin_);
}

void Rotary::rotate(const at::Tensor& x, const at::Tensor& sin) const {
  const auto half = x.size(-1) / 2;
  if (x.scalar_type() != at::kFloat) {
    const auto wide = x.to(at::kFloat);
    rotate(wide, sin);
    x.copy_(wide);
    return;
  }
  const auto first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  const auto first_sin = at::mul(first, sin);
  first.mul_(cos_).sub_(at::mul(second, sin));
  second.mul_(cos_).add_(first_sin);
}

}  // namespace fem::exec
