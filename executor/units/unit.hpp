// A unit of the model (embedding, block, head) as a trio of functions: forward, input gradient, weight gradient.
// Parameters never go on an autograd tape; what the forward keeps is listed in ir/units.def and nothing else is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "executor/comm/communicator.hpp"
#include "ir/settings.hpp"
#include "ir/units.hpp"

namespace fem::exec {

// The groups a unit may have to talk to. Communication runs over them even where a size is 1 (then it is free).
struct ParallelContext {
  Communicator* comm = nullptr;  // may be null where all sizes are 1 (tests of single units)
  int dp = 1, cp = 1, tp = 1, ep = 1;
  int dp_rank = 0, cp_rank = 0, tp_rank = 0, ep_rank = 0;
};

// Tokens of one microbatch, both int64 [micro, seq_len]. A target of -100 is ignored.
struct Microbatch {
  at::Tensor tokens, targets;
};
inline constexpr std::int64_t kIgnoredTarget = -100;

// Loss of one microbatch before any normalisation: sum of token losses (fp32 per token, summed in fp64 in token
// order) and the number of targets that are not ignored.
struct LossSum {
  double loss = 0;
  std::int64_t tokens = 0;
};

using Tensors = std::vector<at::Tensor>;

// Activations are [micro, seq_len, hidden] in the compute format; parameters are in the compute format, in the order of
// ir/units.def; gradients are fp32 accumulators of the parameters' shapes, to which backward_weight adds.
// Gradients are those of the plain sum of token losses: one normaliser divides later, once per step.
class Unit {
 public:
  virtual ~Unit() = default;

  // x is undefined for the embedding; the result is undefined for the head, which adds to *loss instead.
  // saved == nullptr: forward only, nothing kept. Otherwise *saved ends with exactly the slots of units.def, in order.
  virtual at::Tensor forward(std::span<const at::Tensor> params, const at::Tensor& x, const Microbatch& batch,
                             Tensors* saved, LossSum* loss) const = 0;

  // dy is undefined for the head; the result is undefined for the embedding. Consumes *saved: releases what is no
  // longer needed and may overwrite what is not x or the batch. Leaves in *work exactly the tensors that units.def
  // lists for BackwardWeight; some are dy, x or saved tensors themselves. Does no weight product.
  virtual at::Tensor backward_input(std::span<const at::Tensor> params, const at::Tensor& dy, Tensors* saved,
                                    Tensors* work) const = 0;

  // Adds the weight gradients to `grads` (fp32) and consumes *work. Does no input product.
  virtual void backward_weight(Tensors* work, std::span<const at::Tensor> grads) const = 0;
};

// The unit with index `unit` of the model (0: embedding, layers + 1: head).
std::unique_ptr<Unit> make_unit(const ir::Settings& settings, std::int64_t unit, const ParallelContext& context);

}  // namespace fem::exec
