// Cross-entropy of next-token prediction: the plain sum over the targets that are not ignored; one normaliser, the
// global number of valid tokens, divides the gradients later, once per step.
#pragma once

#include <ATen/core/Tensor.h>

#include "executor/units/unit.hpp"

namespace fem::exec {

// logits [tokens, vocab] in the compute format, targets int64 [tokens], each in [0, vocab) or kIgnoredTarget (anything
// else is an error). Statistics are fp32, kept for the backward: lse fp32 [tokens], the log-sum-exp of each row.
struct CrossEntropyOutput {
  LossSum sum;
  at::Tensor lse;
};
CrossEntropyOutput cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets);

// Turns logits into the gradient of the sum, softmax - one-hot, in place; rows of ignored targets become 0.
void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& lse, const at::Tensor& targets);

}  // namespace fem::exec
