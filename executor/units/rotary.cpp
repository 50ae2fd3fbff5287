#include "executor/units/rotary.hpp"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/neg.h>

#include "executor/error.hpp"
#include "executor/units/formats.hpp"
#include "executor/units/loops.hpp"
#include "ir/units.hpp"

namespace fem::exec {
namespace {

// Both [positions, half].
void fill_tables(float* cos, float* sin, std::int64_t positions, std::int64_t half, double theta) {
  const std::int64_t head_dim = 2 * half;
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const auto frequency = static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(i) / head_dim));
      const float angle = static_cast<float>(p) * frequency;
      cos[p * half + i] = std::cos(angle);
      sin[p * half + i] = std::sin(angle);
    }
}

}  // namespace

Rotary::Rotary(std::int64_t seq_len, std::int64_t head_dim, double theta, c10::Device device) {
  FEM_CHECK(head_dim % 2 == 0, "rotary embedding needs an even head_dim, not " + std::to_string(head_dim));
  const auto half = head_dim / 2;
  const auto options = at::TensorOptions(at::kFloat).device(device);
  cos_ = at::empty({seq_len, half}, options);
  sin_ = at::empty({seq_len, half}, options);
  over_memory(cos_, [&] { fill_tables(out<float>(cos_), out<float>(sin_), seq_len, half, theta); });
  minus_sin_ = at::neg(sin_);
}

Rotary make_rotary(const ir::Settings& settings, c10::Device device) {
  const ir::UnitDims dims = ir::unit_dims(settings);
  return {dims.seq_len, dims.head_dim, settings.model.rope_theta, device};
}

void Rotary::rotate(Sequence& s, const at::Tensor& x, const at::Tensor& sin) const {
  by_format(x.scalar_type(), [&]<class T>(T*) {
    s.add([x, cos = cos_, sin] {
      over_memory(x, [&] {
        const auto sequence = x.size(1) * x.size(2) * x.size(3);
        for (std::int64_t b = 0; b < x.size(0); ++b)
          loops::rotate(out<T>(x) + b * sequence, in<float>(cos), in<float>(sin), x.size(1), x.size(2), x.size(3) / 2);
      });
    });
  });
}

}  // namespace fem::exec
