#include "executor/units/linear.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>

namespace fem::exec {
namespace {

at::Tensor fp32(const at::Tensor& t) { return t.to(at::kFloat); }

}  // namespace

Arithmetic choose_arithmetic(at::ScalarType compute) {
  if (compute == at::kFloat) return Arithmetic::Direct;
  static const auto supported = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "")
                                    .typed<bool()>();
  return supported.call() ? Arithmetic::Direct : Arithmetic::ThroughFloat32;
}

bool Linear::widen(const at::Tensor& t) const {
  return arithmetic_ == Arithmetic::ThroughFloat32 && t.scalar_type() != at::kFloat;
}

at::Tensor Linear::forward(const at::Tensor& x, const at::Tensor& w) const {
  if (widen(x)) return at::mm(fp32(x), fp32(w).t()).to(x.scalar_type());
  return at::mm(x, w.t());
}

at::Tensor Linear::forward_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w) const {
  if (widen(x)) return fp32(residual).addmm_(fp32(x), fp32(w).t()).to(x.scalar_type());
  return at::addmm(residual, x, w.t());
}

at::Tensor Linear::backward_input(const at::Tensor& dy, const at::Tensor& w) const {
  if (widen(dy)) return at::mm(fp32(dy), fp32(w)).to(dy.scalar_type());
  return at::mm(dy, w);
}

at::Tensor Linear::backward_input_sum(std::initializer_list<Output> outputs) const {
  at::Tensor sum;
  for (const auto& [dy, w] : outputs) {
    if (dy.scalar_type() != at::kFloat && arithmetic_ == Arithmetic::Direct) {
      auto product = at::mm(dy, w);
      sum = sum.defined() ? sum.add_(product) : fp32(product);
    } else if (sum.defined()) {
      sum.addmm_(fp32(dy), fp32(w));
    } else {
      sum = at::mm(fp32(dy), fp32(w));
    }
  }
  return sum;
}

void Linear::backward_weight(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x) const {
  if (dy.scalar_type() != at::kFloat && arithmetic_ == Arithmetic::Direct) {
    dw.add_(at::mm(dy.t(), x));
  } else {
    dw.addmm_(fp32(dy).t(), fp32(x));
  }
}

}  // namespace fem::exec
