// Cross-entropy of next-token prediction: the plain sum over the targets that are not ignored; one normaliser, the
// global number of valid tokens, divides the gradients later, once per step.
#pragma once

#include "executor/units/sequence.hpp"
#include "executor/units/unit.hpp"

namespace fem::exec {

// logits [tokens, vocab] in the compute format, targets int64 [tokens], each in [0, vocab) or kIgnoredTarget (anything
// else is an error when the sequence runs). Statistics are fp32: lse fp32 [tokens], the log-sum-exp of each row.
// Rows are handled in blocks of `rows` (ir::cross_entropy_rows): fp32 temporaries stay that small.
struct CrossEntropyTensors {
  at::Tensor logits, targets, lse;
  std::int64_t rows;
};

// Writes lse; *sum becomes the loss each time that the sequence runs.
void cross_entropy_forward(Sequence& s, const CrossEntropyTensors& t, LossSum* sum);

// Turns logits into the gradient of the sum, softmax - one-hot, in place; rows of ignored targets become 0. In fp16 it
// is multiplied by context.loss_scale before it is rounded.
void cross_entropy_backward(Sequence& s, const CrossEntropyTensors& t, const CallContext& context);

}  // namespace fem::exec
