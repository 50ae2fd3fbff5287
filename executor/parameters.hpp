// The parameters that one rank holds: per unit one flat buffer of each kind, and the parameters as views into them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "executor/block_pool.hpp"
#include "executor/comm/communicator.hpp"
#include "executor/units/window.hpp"
#include "ir/plan.hpp"
#include "ir/units.hpp"

namespace fem::exec {

using ir::flat_elements;
using ir::kParameterAlignment;

// This rank among the replicas over dp and cp: a flat buffer has `count` equal pieces, and with parallel.zero above 0
// each replica owns the piece of its index.
struct ReplicaPlace {
  int index = 0, count = 1;
};

// What this rank owns of one parameter: the part inside its piece. Views [elements].
struct OwnedPart {
  std::int64_t param = 0, offset = 0;  // index in ir/units.def; first element inside the parameter
  at::Tensor master, grad, exp_avg, exp_avg_sq;  // as the update uses them
};

// The memory under a tensor that is there for a part of a step only: a block of the arena while it is.
struct ArenaBuffer {
  Window window;
  Block block;

  void take(BlockPool& pool, ir::Lane lane) {
    if (block) return;
    block = pool.take(window.bytes(), lane);
    window.place(block.data());
  }
  void give_back() {
    window.place(nullptr);
    block.reset();
  }
};

// One unit's parameters on this rank. A whole flat buffer holds the parameters in the order of ir/units.def, each at a
// multiple of kParameterAlignment, the gaps zero, and has `elements` elements. What is owned is the whole of it with
// parallel.zero 0, else this rank's piece.
struct UnitParameters {
  std::int64_t unit = 0;  // index in the whole model
  ir::UnitKind kind{};
  std::int64_t elements = 0, owned_begin = 0, owned = 0;

  at::Tensor compute;  // whole, in the compute format. In fp32 the owned part is the master's memory, but for zero 3
  at::Tensor compute_own, grad_own;  // the owned parts of `compute` and `grad`, views
  at::Tensor grad;     // whole, fp32: accumulators of the plain sum of token losses
  at::Tensor master, exp_avg, exp_avg_sq;  // owned, fp32: master copy and moments of AdamW; with memory.offload of the
                                           // optimizer, moments in host memory
  at::Tensor moments;  // both, one behind the other, for the update: in the arena while they are there; or undefined
  at::Tensor reduced;  // owned, fp32: gradients summed over the replicas; `grad`'s memory where reduced once a step

  std::vector<at::Tensor> params, grads;                 // views of the whole, of the parameters' shapes
  std::vector<at::Tensor> masters, exp_avgs, exp_avg_sqs;  // likewise; empty where the rank owns a part only
  std::vector<OwnedPart> parts;                          // in the order of ir/units.def

  bool gathered = true;          // `compute` holds the parameters; with zero 3 only between Unshard and Reshard
  bool reduced_in_place = true;  // `reduced` is `grad`'s memory
  bool reduced_before = false;   // in this step: a further reduction adds
  bool owns_all() const { return owned == elements; }

  // At level lane, where `compute` and `grad` come and go; with memory.offload of the optimizer.
  std::optional<ArenaBuffer> compute_buffer, grad_buffer, moments_buffer;
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
  // Allocates; the values come from initialise() or from a checkpoint. Gradients and moments are zero. On Meta there
  // are sizes alone.
  Parameters(const ir::Plan& plan, int pp, ReplicaPlace replica = {}, c10::Device device = c10::kCPU);

  // Values from the seed and the parameters' names alone, the same on every layout.
  void initialise(const ir::Settings& settings, std::uint64_t seed);

  // The masters from a whole flat fp32 buffer, and all of the working copy where it is held.
  static void set_master(UnitParameters& unit, const at::Tensor& whole);

  // Writes the owned part of the working copies from the masters. Free in fp32 with zero 0 to 2.
  void refresh_compute();
  static void refresh_compute(UnitParameters& unit);

  // Unshard: makes the working copy whole from the replicas' owned parts. With zero 3 all units share one buffer, and
  // one unit is gathered at a time; but at level lane the caller has placed the unit's window.
  void gather(UnitParameters& unit, Communicator& comm, ir::Group group);
  // Reshard: the working copy is gone. With poison() its memory becomes NaN, so that a use would show; but for what is
  // the master's too.
  void release(UnitParameters& unit);
  // After an update: of a working copy that stays, the other replicas' parts are old. With poison() they become NaN.
  void outdate(UnitParameters& unit);
  void poison(bool on) { poison_ = on; }

  ReplicaPlace replica() const { return replica_; }
  c10::Device device() const { return device_; }
  std::span<StageParameters> stages() { return stages_; }
  std::span<const StageParameters> stages() const { return stages_; }
  StageParameters* find_stage(int stage);  // nullptr: not on this rank
  // fp32 master of parameter "weight" of the embedding or head; nullptr too where the rank owns a part of it only.
  const at::Tensor* find_weight(ir::UnitKind kind) const;

 private:
  at::Tensor zeros(std::int64_t elements, at::ScalarType type) const;
  at::Tensor host_zeros(std::int64_t elements) const;  // fp32
  UnitParameters make_unit(const ir::Settings& settings, std::int64_t unit);
  static void poison_others(UnitParameters& unit);  // of `compute`, what other replicas own
  at::Tensor shared(at::Tensor& buffer, std::int64_t elements, at::ScalarType type);

  ReplicaPlace replica_;
  c10::Device device_;
  bool by_lane_;
  std::vector<StageParameters> stages_;
  at::Tensor gather_buffer_, grad_buffer_;  // that units share, as large as the largest of them; or undefined
  const UnitParameters* in_gather_buffer_ = nullptr;
  bool poison_ = false;
};

// Calls visit(param index, first element inside the parameter, first element inside the flat buffer, elements) for each
// part of a parameter that lies in [begin, end) of the flat buffer, in order.
template <class Visit>
void each_part(ir::UnitKind kind, const ir::UnitDims& dims, std::int64_t begin, std::int64_t end, Visit visit) {
  std::int64_t at = 0, index = 0;
  for (const ir::ParamInfo& param : ir::info(kind).params) {
    const std::int64_t n = param.elements(dims);
    const std::int64_t first = begin > at ? begin : at, last = end < at + n ? end : at + n;
    if (first < last) visit(index, first - at, first, last - first);
    at += (n + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
    ++index;
  }
}

// Views of the parameters' shapes into a whole flat buffer.
std::vector<at::Tensor> parameter_views(const at::Tensor& flat, ir::UnitKind kind, const ir::UnitDims& dims);

// The Hugging Face name of a parameter by its index in ir/units.def.
std::string parameter_name(const UnitParameters& unit, std::size_t param);

// Index of the parameter called `name` in the unit's row order; -1: none.
std::int64_t param_position(ir::UnitKind kind, std::string_view name);

}  // namespace fem::exec
