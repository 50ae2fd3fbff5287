#include "executor/units/rms_norm.hpp"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sum.h>

#include "executor/units/formats.hpp"
#include "executor/units/loops.hpp"

namespace fem::exec {

void rms_norm_statistics(Sequence& s, const at::Tensor& x, double eps, at::Tensor rstd) {
  const auto frame = s.frame();
  const auto wide = x.scalar_type() == at::kFloat ? x : s.scratch(x.sizes(), at::kFloat);
  s.add([x, wide, eps, rstd]() mutable {
    if (!wide.is_same(x)) wide.copy_(x);
    at::linalg_vector_norm_out(rstd, wide, 2, at::IntArrayRef{-1});
    over_memory(rstd, [&] {
      loops::inverse_rms(out<float>(rstd), x.size(0), x.size(1), static_cast<float>(eps));
    });
  });
}

void rms_norm_apply(Sequence& s, const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& w,
                    const at::Tensor& y) {
  by_format(x.scalar_type(), [&]<class T>(T*) {
    s.add([x, rstd, w, y] {
      over_memory(y, [&] {
        loops::scale_rows(in<T>(x), in<float>(rstd), in<T>(w), out<T>(y), x.size(0), x.size(1));
      });
    });
  });
}

// With xhat = x rstd and g = dy w: dx = rstd (g - xhat mean(g xhat)), dw = sum over tokens of dy xhat.
void rms_norm_backward(Sequence& s, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& rstd,
                       const at::Tensor& w, const at::Tensor& residual, const RmsNormGradients& gradients) {
  const auto frame = s.frame();
  const auto product = s.scratch(dy.sizes(), at::kFloat);
  auto sums = s.scratch(rstd.sizes(), at::kFloat);
  by_format(x.scalar_type(), [&]<class T>(T*) {
    s.add([dy, x, rstd, w, residual, g = gradients, product, sums]() mutable {
      const auto rows = x.size(0), columns = x.size(1);
      over_memory(product, [&] {
        loops::norm_products(in<float>(dy), in<T>(x), in<float>(rstd), in<T>(w), out<T>(g.y), out<float>(product), rows,
                             columns);
      });
      at::sum_out(g.dw, product, at::IntArrayRef{0});
      over_memory(product, [&] { loops::scale_columns(out<float>(product), in<T>(w), rows, columns); });
      // Not at::mv: its sums depend on the address of w.
      at::sum_out(sums, product, at::IntArrayRef{-1});
      over_memory(g.dx, [&] {
        const T* added = residual.defined() ? in<T>(residual) : nullptr;
        loops::norm_gradient(in<float>(dy), in<T>(x), in<float>(rstd), in<T>(w), in<float>(sums), added, out<T>(g.dx),
                             rows, columns);
      });
    });
  });
}

}  // namespace fem::exec
