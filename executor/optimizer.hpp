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

  // One update from the reduced gradients, then this rank's part of the working copies that it holds; of the unit with
  // that index in the whole model, of all units of the stage where it is negative. `update` counts from 1: it corrects
  // the bias of the moments.
  void step(double lr, std::int64_t update, int unit = -1);

 private:
  struct Set {
    double weight_decay = 0;
    std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  };
  struct Sets {  // of one unit
    UnitParameters* unit;
    Set decayed, plain;
  };
  void add(Set& set, const OwnedPart& part);
  void step(Set& set, double lr) const;

  double beta1_, beta2_, eps_;
  at::Tensor count_;  // fp32 scalar that all parameters share
  std::vector<Sets> units_;  // in model order
};

}  // namespace fem::exec
