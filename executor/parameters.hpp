// The parameters that one rank holds: per unit one flat buffer of each kind, and the parameters as views into them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ir/plan.hpp"
#include "ir/units.hpp"

namespace fem::exec {

// Offsets inside a flat buffer are multiples of this many elements: 64 bytes in either format, so that vector loops
// start a parameter at the same alignment wherever it lies.
inline constexpr std::int64_t kParameterAlignment = 32;

// One unit's parameters on this rank. All buffers have the same layout: the parameters in the order of ir/units.def,
// each at a multiple of kParameterAlignment, the gaps zero. Views have the parameters' shapes.
struct UnitParameters {
  std::int64_t unit = 0;  // index in the whole model
  ir::UnitKind kind{};

  at::Tensor master;              // fp32 [n]
  at::Tensor compute;             // [n] in the compute format; the same memory as `master` when that is fp32
  at::Tensor grad;                // fp32 [n], accumulators of the plain sum of token losses
  at::Tensor exp_avg, exp_avg_sq; // fp32 [n], moments of AdamW

  std::vector<at::Tensor> masters, params, grads, exp_avgs, exp_avg_sqs;  // views, by index in ir/units.def
};

struct StageParameters {
  std::int16_t stage = 0;
  std::vector<UnitParameters> units;  // of the stage, in model order
};

// Index of a parameter among all parameters of the model: embedding, blocks, head, inside a unit as in ir/units.def.
// The order in which norms are summed.
std::int64_t parameter_index(std::int64_t unit, std::int64_t param);
std::int64_t parameter_slots(const ir::Settings& settings);  // number of those indices; a tied head has one too

// All parameters of the stages that pipeline coordinate `pp` runs. A tied embedding is two parameters, the embedding's
// and the head's, with a buffer and an accumulator each, on every layout.
class Parameters {
 public:
  // Allocates; the values come from initialise() or from a checkpoint. Gradients and moments are zero.
  Parameters(const ir::Plan& plan, int pp);

  // Values from the seed and the parameters' names alone, the same on every layout.
  void initialise(const ir::Settings& settings, std::uint64_t seed);

  // Rewrites the compute copies from the masters. Free in fp32.
  void refresh_compute();
  static void refresh_compute(UnitParameters& unit);

  std::span<StageParameters> stages() { return stages_; }
  std::span<const StageParameters> stages() const { return stages_; }
  StageParameters* find_stage(int stage);              // nullptr: not on this rank
  const at::Tensor* find_weight(ir::UnitKind kind) const;  // fp32 master of parameter "weight" of the embedding or head

 private:
  std::vector<StageParameters> stages_;
};

// Elements of a unit's flat buffer, gaps included.
std::int64_t flat_elements(ir::UnitKind kind, const ir::UnitDims& dims);

// The Hugging Face name of a parameter by its index in ir/units.def.
std::string parameter_name(const UnitParameters& unit, std::size_t param);

// Index of the parameter called `name` in the unit's row order; -1: none.
std::int64_t param_position(ir::UnitKind kind, std::string_view name);

}  // namespace fem::exec
