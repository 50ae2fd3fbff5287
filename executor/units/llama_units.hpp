// The three kinds of unit of a Llama model. Each file holds a unit's forward and backward side by side.
#pragma once

#include "executor/units/linear.hpp"
#include "executor/units/unit.hpp"

namespace fem::exec {

// What a unit is recorded from and into.
struct Recording {
  const ir::Settings& settings;
  const UnitMemory& memory;
  std::span<const at::Tensor> params, grads;
  Linear linear;
  const Rotary* rotary;  // of all blocks; null: a block makes its own
  UnitCall& call;
  UnitPhases& phases;
};

// Tokens -> hidden: one row of the weight per token.
void record_embedding(const Recording& r);

// mid = x + attention(rms_norm(x)), y = mid + swiglu(rms_norm(mid)).
void record_block(const Recording& r);

// Hidden -> loss: final norm, projection to the vocabulary, cross-entropy.
void record_head(const Recording& r);

}  // namespace fem::exec
