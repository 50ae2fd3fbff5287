// The units as compositions of functional operators that keep lists of tensors: the reference of the units' bits. Apart
// from the memory they lie in, the tensors are those of ir/units.def.
#pragma once

#include "functional_parts.hpp"

namespace fem::exec::test::functional {

using Tensors = std::vector<at::Tensor>;

class Unit {
 public:
  virtual ~Unit() = default;
  virtual at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch,
                             Tensors* saved, LossSum* loss) const = 0;
  virtual at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                                    Tensors* work) const = 0;
  virtual void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const = 0;
};

std::unique_ptr<Unit> make_unit(const ir::Settings& settings, std::int64_t unit, Arithmetic arithmetic);

}  // namespace fem::exec::test::functional
