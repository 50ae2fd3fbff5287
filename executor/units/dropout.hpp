// Dropout with masks that are computed where they are needed and never kept (Srivastava et al. 2014): a dropped element
// becomes 0, a kept one is multiplied by 1 / (1 - p).
//
// Whether an element is dropped is a function of the run's seed, the step, the site in the model, and where the element
// stands in the global batch: its sample, token and column. So forward, recompute and backward agree, and the layout of
// ranks, the schedule and the size of a microbatch do not enter.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "executor/units/call_context.hpp"

namespace fem::exec {

// One place of the model that drops.
struct DropoutSite {
  double rate = 0;                   // p, below 1
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;          // of the site: no two have the same
  std::int64_t sample_elements = 0;  // of the activation of one sample
};

// Tensors are the contiguous activations of a microbatch. A value; the context is read when a call runs.
class Dropout {
 public:
  Dropout(const DropoutSite& site, const CallContext& context);

  bool configured() const { return threshold_ != 0; }
  bool active() const { return configured() && context_->train; }

  // y = residual + drop(x), rounded once to the format of y and residual; x is of that format or fp32, and may be y.
  void add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& y) const;

  // y = drop(x), rounded once; y may be x. The gradient of drop, too. Where nothing is dropped, a copy.
  void apply(const at::Tensor& x, const at::Tensor& y) const;

  // sum += drop(x) for a row of the activation that begins at element `first`; sum fp32.
  template <class T>
  void add_row(float* sum, const T* x, std::int64_t first, std::int64_t elements) const;

 private:
  template <class Use>
  void each(std::int64_t first, std::int64_t elements, Use use) const;
  bool keeps(std::uint32_t word) const { return word >= threshold_; }

  DropoutSite site_;
  std::uint32_t threshold_;  // of 2^32: words below it drop
  float scale_;
  const CallContext* context_;
};

}  // namespace fem::exec
