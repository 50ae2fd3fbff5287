// Small models, random inputs, and the same mathematics as plain differentiable operators in fp64.
#pragma once

#include <ostream>
#include <string>

#include <ATen/core/Tensor.h>

#include "executor/units/unit.hpp"

namespace fem::exec::test {

struct Shape {
  std::int64_t micro = 2, seq_len = 7, hidden = 24, intermediate = 40, heads = 4, kv_heads = 4, head_dim = 6;
  std::int64_t vocab = 257;
  const char* compute = "fp32";
};
std::string describe(const Shape& shape);  // "fp32_seq7_hidden24_heads4_kv4_dim6"
void PrintTo(const Shape& shape, std::ostream* out);  // for GoogleTest's messages
ir::Settings settings_of(const Shape& shape);

enum : std::int64_t { kEmbedding = 0, kBlock = 1, kHead = 2 };  // units of the one-layer model

// Everything that a unit's trio takes, from a seed, in the compute format. Matrices normal(0, 0.2), norms near 1.
struct Inputs {
  Tensors params;
  at::Tensor x, dy;  // undefined where the unit has none
  Microbatch batch;
};
Inputs inputs_of(const Shape& shape, std::int64_t unit, std::uint64_t seed = 1);

// What a forward and backward produce.
struct Results {
  at::Tensor y, dx;
  LossSum loss;
  Tensors grads;
  Tensors saved, work;  // sizes and formats as they were after forward and backward_input; values may be reused since
};
Results run_unit(const Shape& shape, std::int64_t unit, const Inputs& in);

// The same by autograd in fp64, from the same (rounded) inputs.
Results reference(const Shape& shape, std::int64_t unit, const Inputs& in);

// Largest difference, relative to the largest entry of b.
double relative_error(const at::Tensor& a, const at::Tensor& b);

bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace fem::exec::test
