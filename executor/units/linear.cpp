#include "executor/units/linear.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "executor/units/formats.hpp"
#include "executor/units/loops.hpp"

namespace fem::exec {
namespace {

// An fp32 copy of t in scratch, or t itself; `fill` writes the copy, each time that the sequence runs.
struct Widened {
  Widened(Sequence& s, const at::Tensor& t)
      : source(t), wide(t.scalar_type() == at::kFloat ? t : s.scratch(t.sizes(), at::kFloat)) {}
  void fill() const {
    if (!wide.is_same(source)) wide.copy_(source);
  }
  at::Tensor source, wide;
};

// sum += x, sum fp32.
void add(const at::Tensor& sum, const at::Tensor& x) {
  by_format(x.scalar_type(), [&]<class T>(T*) {
    over_memory(sum, [&] { loops::add(out<float>(sum), in<T>(x), sum.numel()); });
  });
}

}  // namespace

Arithmetic choose_arithmetic(at::ScalarType compute) {
  if (compute == at::kFloat) return Arithmetic::Direct;
  if (compute == at::kHalf) return Arithmetic::ThroughFloat32;
  static const auto supported = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "")
                                    .typed<bool()>();
  return supported.call() ? Arithmetic::Direct : Arithmetic::ThroughFloat32;
}

bool Linear::widen(const at::Tensor& t) const {
  return arithmetic_ == Arithmetic::ThroughFloat32 && t.scalar_type() != at::kFloat;
}

bool Linear::direct_narrow(const at::Tensor& t) const {
  return arithmetic_ == Arithmetic::Direct && t.scalar_type() != at::kFloat;
}

void Linear::forward(Sequence& s, const at::Tensor& x, const at::Tensor& w, at::Tensor y) const {
  if (!widen(x)) {
    s.add([x, wt = w.t(), y]() mutable { at::mm_out(y, x, wt); });
    return;
  }
  const auto frame = s.frame();
  const Widened x32(s, x), w32(s, w), y32(s, y);
  s.add([x32, w32, wt = w32.wide.t(), y, product = y32.wide]() mutable {
    x32.fill();
    w32.fill();
    at::mm_out(product, x32.wide, wt);
    y.copy_(product);
  });
}

void Linear::forward_add(Sequence& s, const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w,
                         const Dropout& dropout, at::Tensor y) const {
  if (!widen(x)) {
    s.add([residual, x, wt = w.t(), y, dropout]() mutable {
      if (!dropout.active()) {
        at::addmm_out(y, residual, x, wt);
      } else {
        at::mm_out(y, x, wt);
        dropout.add(residual, y, y);
      }
    });
    return;
  }
  const auto frame = s.frame();
  const Widened x32(s, x), w32(s, w), y32(s, y);
  s.add([residual, x32, w32, wt = w32.wide.t(), y, product = y32.wide, dropout]() mutable {
    x32.fill();
    w32.fill();
    if (!dropout.active()) {
      product.copy_(residual).addmm_(x32.wide, wt);
      y.copy_(product);
    } else {
      at::mm_out(product, x32.wide, wt);
      dropout.add(residual, product, y);
    }
  });
}

void Linear::backward_input(Sequence& s, const at::Tensor& dy, const at::Tensor& w, at::Tensor dx) const {
  if (!widen(dy)) {
    s.add([dy, w, dx]() mutable { at::mm_out(dx, dy, w); });
    return;
  }
  const auto frame = s.frame();
  const Widened dy32(s, dy), w32(s, w), dx32(s, dx);
  s.add([dy32, w32, dx, product = dx32.wide]() mutable {
    dy32.fill();
    w32.fill();
    at::mm_out(product, dy32.wide, w32.wide);
    dx.copy_(product);
  });
}

void Linear::backward_input_sum(Sequence& s, std::initializer_list<Output> outputs, at::Tensor sum) const {
  bool first = true;
  for (const auto& [dy, w] : outputs) {
    const auto frame = s.frame();
    if (direct_narrow(dy)) {
      s.add([dy = dy, w = w, sum, first, product = s.scratch(sum.sizes(), dy.scalar_type())]() mutable {
        at::mm_out(product, dy, w);
        if (first) {
          sum.copy_(product);
        } else {
          add(sum, product);
        }
      });
    } else {
      s.add([dy32 = Widened(s, dy), w32 = Widened(s, w), sum, first]() mutable {
        dy32.fill();
        w32.fill();
        if (first) {
          at::mm_out(sum, dy32.wide, w32.wide);
        } else {
          sum.addmm_(dy32.wide, w32.wide);
        }
      });
    }
    first = false;
  }
}

void Linear::backward_weight(Sequence& s, at::Tensor dw, const at::Tensor& dy, const at::Tensor& x) const {
  const auto frame = s.frame();
  if (direct_narrow(dy)) {
    s.add([dw, dyt = dy.t(), x, product = s.scratch(dw.sizes(), dy.scalar_type())]() mutable {
      at::mm_out(product, dyt, x);
      add(dw, product);
    });
    return;
  }
  const Widened dy32(s, dy), x32(s, x);
  s.add([dw, dy32, dyt = dy32.wide.t(), x32]() mutable {
    dy32.fill();
    x32.fill();
    dw.addmm_(dyt, x32.wide);
  });
}

}  // namespace fem::exec
