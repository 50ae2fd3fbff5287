// AdamW on what one rank owns of a stage.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "executor/parameters.hpp"
#include "ir/settings.hpp"

namespace fem::exec {

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2) on fp32 masters and moments. Decay
// applies to the parameters whose row of ir/units.def says so: matrices, not norms.
class AdamW {
 public:
  // Keeps views of the buffers of `stage`, which must stay where they are.
  AdamW(const ir::Settings& settings, StageParameters& stage);

  // One update from the reduced gradients, then this rank's part of the working copies that it holds. `update` counts
  // from 1: it corrects the bias of the moments.
  void step(double lr, std::int64_t update);

 private:
  struct Set {
    double weight_decay = 0;
    std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  };
  void add(Set& set, const OwnedPart& part);

  double beta1_, beta2_, eps_;
  at::Tensor count_;  // fp32 scalar that all parameters share
  Set decayed_, plain_;
  StageParameters& stage_;
};

}  // namespace fem::exec
