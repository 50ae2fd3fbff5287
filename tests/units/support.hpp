// Small models, random inputs, and the same mathematics as plain differentiable operators in fp64.
#pragma once

#include <ostream>
#include <string>

#include <ATen/core/Tensor.h>

#include "executor/units/unit.hpp"

namespace fem::exec::test {

using Tensors = std::vector<at::Tensor>;

struct Shape {
  std::int64_t micro = 2, seq_len = 7, hidden = 24, intermediate = 40, heads = 4, kv_heads = 4, head_dim = 6;
  std::int64_t vocab = 257;
  const char* compute = "fp32";
  double dropout = 0;
};
std::string describe(const Shape& shape);  // "fp32_seq7_hidden24_heads4_kv4_dim6", "_drop" behind it with dropout
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

// Memory with 64 bytes around it that nothing may touch; all of it holds ones, NaN in every floating-point format.
class Guarded {
 public:
  explicit Guarded(std::int64_t bytes, std::int64_t shift = 0);  // further behind by `shift`, a multiple of 64
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  at::Tensor view(std::int64_t offset, at::IntArrayRef sizes, at::ScalarType type) const;
  bool untouched_around() const;  // only what lies outside

 private:
  std::shared_ptr<std::byte[]> memory_;
  std::byte* data_;
  std::int64_t bytes_;
};

// The blocks of one unit and microbatch, x and dy filled, and the workspace: exactly as large as declared.
struct Blocks {
  Blocks(const Shape& shape, std::int64_t unit, const Inputs& in, std::int64_t shift = 0);
  UnitBuffers at(ir::Phase phase) const;
  UnitBuffers at_discarding(bool keep_saved_b = false) const;  // forward without saved blocks
  bool guards_intact() const;

  // Copies of what lies there now.
  at::Tensor output() const;
  at::Tensor grad_input() const;
  Tensors saved_tensors() const;
  Tensors work_tensors() const;

  ir::UnitKind kind;
  ir::UnitDims dims;
  ir::UnitFormats formats;
  at::ScalarType compute;
  std::int64_t micro, seq_len;
  Guarded x, y, saved_b, saved_w, work, dy, dx, forward, discard, backward_input, backward_weight;

 private:
  at::Tensor copy(const ir::BufferInfo& row, ir::BufferPlace place) const;
};

// What a forward and backward produce.
struct Results {
  at::Tensor y, dx;
  LossSum loss;
  Tensors grads;
  Tensors saved, work;  // copies, as they were after forward and backward_input
};
Results run_unit(const Shape& shape, std::int64_t unit, const Inputs& in, std::int64_t shift = 0);
Results run_unit(const Shape& shape, std::int64_t unit, const Inputs& in, Arithmetic arithmetic,
                 const CallContext& context = {});

// Zero accumulators of the parameters' shapes.
Tensors zero_grads(const Inputs& in);

// The same by functional operators (functional.hpp), whose bits the unit must have.
Results run_functional(const Shape& shape, std::int64_t unit, const Inputs& in, Arithmetic arithmetic);

// The same by autograd in fp64, from the same (rounded) inputs; with the masks of `context` where it trains.
Results reference(const Shape& shape, std::int64_t unit, const Inputs& in, const CallContext& context = {});

// What dropout multiplies the elements of a microbatch's activation by, 0 or 1 / (1 - p), fp64 [micro, seq_len,
// hidden]: element by element from the generator, as docs/architecture.md says. `place`: 0 the embedding's output,
// 1 attention, 2 SwiGLU.
at::Tensor dropout_factors(const Shape& shape, std::int64_t unit, std::uint32_t place, const CallContext& context);

// Largest difference, relative to the largest entry of b.
double relative_error(const at::Tensor& a, const at::Tensor& b);

bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace fem::exec::test
