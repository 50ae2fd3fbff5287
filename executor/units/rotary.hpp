// Rotary position embedding, rotate-half convention of Hugging Face's Llama (Su et al. 2021, RoFormer).
#pragma once

#include <cstdint>

#include "executor/units/sequence.hpp"
#include "ir/settings.hpp"

namespace fem::exec {

// Position p turns the pair (x[i], x[i + head_dim/2]) by the angle p * theta^(-2i/head_dim). Inverse frequencies,
// angles and the rotation itself are fp32 whatever the compute format.
class Rotary {
 public:
  // Fills the table of positions 0 .. seq_len-1. An odd head_dim is an error.
  Rotary(std::int64_t seq_len, std::int64_t head_dim, double theta, c10::Device device = c10::kCPU);

  // Rotates x [micro, seq_len, heads, head_dim] in place.
  void forward(Sequence& s, const at::Tensor& x) const { rotate(s, x, sin_); }
  // The gradient: the rotation back, in place.
  void backward(Sequence& s, const at::Tensor& dx) const { rotate(s, dx, minus_sin_); }

 private:
  void rotate(Sequence& s, const at::Tensor& x, const at::Tensor& sin) const;
  at::Tensor cos_, sin_, minus_sin_;  // fp32 [seq_len, head_dim/2]; copies of the object share them
};

// Of a model and its sequences.
Rotary make_rotary(const ir::Settings& settings, c10::Device device);

}  // namespace fem::exec
