// The three kinds of unit of a Llama model. Each file holds a unit's forward and backward side by side.
#pragma once

#include "executor/units/declaration.hpp"
#include "executor/units/linear.hpp"
#include "executor/units/rotary.hpp"
#include "executor/units/unit.hpp"

namespace fem::exec {

// Tokens -> hidden: one row of the weight per token.
class EmbeddingUnit final : public Unit {
 public:
  explicit EmbeddingUnit(const ir::Settings& settings);
  at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch, Tensors* saved,
                     LossSum* loss) const override;
  at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                            Tensors* work) const override;
  void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const override;

 private:
  UnitDeclaration declared_;
  ir::UnitDims dims_;
};

// mid = x + attention(rms_norm(x)), y = mid + swiglu(rms_norm(mid)).
class BlockUnit final : public Unit {
 public:
  BlockUnit(const ir::Settings& settings, Arithmetic arithmetic);
  at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch, Tensors* saved,
                     LossSum* loss) const override;
  at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                            Tensors* work) const override;
  void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const override;

 private:
  UnitDeclaration declared_;
  ir::UnitDims dims_;
  double eps_;
  Linear linear_;
  Rotary rotary_;
};

// Hidden -> loss: final norm, projection to the vocabulary, cross-entropy.
class HeadUnit final : public Unit {
 public:
  HeadUnit(const ir::Settings& settings, Arithmetic arithmetic);
  at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch, Tensors* saved,
                     LossSum* loss) const override;
  at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                            Tensors* work) const override;
  void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const override;

 private:
  UnitDeclaration declared_;
  ir::UnitDims dims_;
  double eps_;
  Linear linear_;
};

}  // namespace fem::exec
