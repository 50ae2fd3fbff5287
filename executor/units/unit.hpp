// A unit of the model (embedding, block, head): forward, input gradient and weight gradient as explicit functions that
// write into memory of the caller. Parameters never go on an autograd tape; what the forward keeps, and where it lies,
// is listed in ir/units.def and nothing else is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include "executor/comm/communicator.hpp"
#include "executor/units/arithmetic.hpp"
#include "executor/units/call_context.hpp"
#include "executor/units/memory.hpp"
#include "ir/settings.hpp"
#include "ir/units.hpp"

namespace fem::exec {

// The groups a unit may have to talk to. Communication runs over them even where a size is 1 (then it is free).
struct ParallelContext {
  Communicator* comm = nullptr;  // may be null where all sizes are 1 (tests of single units)
  int dp = 1, cp = 1, tp = 1, ep = 1;
  int dp_rank = 0, cp_rank = 0, tp_rank = 0, ep_rank = 0;
};

class Rotary;

// Tokens of one microbatch, both int64 [micro, seq_len]. A target of -100 is ignored.
struct Microbatch {
  at::Tensor tokens, targets;
};
inline constexpr std::int64_t kIgnoredTarget = -100;

// Loss of one microbatch before any normalisation: sum of token losses (fp32 per token, summed in fp64 in token
// order) and the number of targets that are not ignored.
struct LossSum {
  double loss = 0;
  std::int64_t tokens = 0;
};

// Everything, or the cheap slots alone (ir/units.def) from the others, which were kept.
enum class Recompute : std::uint8_t { everything, cheap };

// The phases of a unit as recorded calls.
struct UnitPhases {
  Sequence forward, recompute, recompute_cheap, backward_input, backward_weight;
};

// What a call reads and returns beside its buffers; at a fixed address, for the recorded calls.
struct UnitCall {
  const Microbatch* batch = nullptr;
  CallContext context;
  LossSum loss;
};

// Bound once to its parameters, on their device, with all views made; then called many times, for any microbatch,
// without allocating (flash attention, reductions and oneDNN products allocate inside their call:
// executor/units/README.md). Not for two threads at once.
//
// Activations are [micro, seq_len, hidden] in the compute format; parameters are in the compute format, in the order of
// ir/units.def; gradients are fp32 accumulators of the parameters' shapes, to which backward_weight adds.
// Gradients are those of the plain sum of token losses, in fp16 times the loss scale: one normaliser divides later,
// once per step. The calls of one microbatch are given the same context.
class Unit {
 public:
  // See make_unit. The arithmetic is chosen apart from the machine only in tests.
  Unit(const ir::Settings& settings, std::int64_t unit, std::span<const at::Tensor> params,
       std::span<const at::Tensor> grads, Arithmetic arithmetic, const Rotary* rotary = nullptr);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  // x, batch -> y and the saved blocks. Without saved blocks nothing is kept (see UnitBuffers); saved_b without saved_w
  // is for Recompute::cheap. The head writes no y and adds to *loss instead; the others do not look at `loss`.
  void forward(const UnitBuffers& at, const Microbatch& batch, LossSum* loss, const CallContext& context = {});

  // x, batch -> the saved blocks, with the bits that the forward would have kept; y is left alone.
  void recompute(const UnitBuffers& at, const Microbatch& batch, Recompute what, const CallContext& context = {});

  // x, saved blocks, dy -> dx and the work block; overwrites slots in which WORK rows lie. The head takes no dy, the
  // embedding writes no dx. Does no weight product.
  void backward_input(const UnitBuffers& at, const CallContext& context = {});

  // dy, saved_w, work -> adds to the gradients. Does no input product.
  void backward_weight(const UnitBuffers& at, const CallContext& context = {});

  ir::UnitKind kind() const { return kind_; }
  const UnitMemory& memory() const { return memory_; }
  const UnitPhases& phases() const { return phases_; }

 private:
  ir::UnitKind kind_;
  UnitMemory memory_;
  UnitCall call_;
  UnitPhases phases_;
};

// The unit with index `unit` of the model (0: embedding, layers + 1: head), on these parameters and gradients.
// `rotary`: the model's, on the device of the parameters, whose tables all blocks of a rank can share; without it a
// block has its own.
std::unique_ptr<Unit> make_unit(const ir::Settings& settings, std::int64_t unit, const ParallelContext& context,
                                std::span<const at::Tensor> params, std::span<const at::Tensor> grads,
                                const Rotary* rotary = nullptr);

}  // namespace fem::exec
