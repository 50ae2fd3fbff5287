// The programs of a plan at stage level, from the order of a schedule.
#pragma once

#include <vector>

#include "compiler/order.hpp"
#include "ir/plan.hpp"

namespace fem::compiler {

// Stages in stage order; `blocks` holds the transformer blocks of every part of the model. The first part has the
// embedding too, the last the head.
std::vector<ir::Stage> make_stages(const Placement& placement, std::span<const std::int64_t> blocks);

// ZeroGrad; the order; ReduceLoss; ReduceReplicaGrad with two directions; ReduceTiedGrad where `tied`; AllReduce;
// GradNorm, ClipGrad, OptimizerStep.
ir::Program train_program(const Order& order, const Placement& placement, std::int64_t m, bool tied);

// Forwards and ReduceLoss. In groups of p microbatches, chunk by chunk inside a group (so that a rank's second chunk
// finds its input ready); with two directions each microbatch in the direction that it has in training, both at once.
ir::Program eval_program(const Placement& placement, std::int64_t m);

}  // namespace fem::compiler
