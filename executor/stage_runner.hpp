// Runs the units of this rank's stages: what Forward, Backward, BackwardInput, BackwardWeight, Recompute and Free do.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "executor/activations.hpp"
#include "executor/metrics.hpp"
#include "executor/parameters.hpp"
#include "executor/units/rotary.hpp"
#include "executor/units/unit.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// What a forward leaves for the backward.
enum class Keep : std::uint8_t {
  nothing,    // no backward follows
  input,      // the unit's input alone: Recompute::everything comes before the backward
  expensive,  // all but the cheap slots: Recompute::cheap comes before the backward
  everything,
};

// Units are counted from the stage's first. Forwards run from the first unit of a stage to its last, backwards the
// other way; a call whose input was not written is an error.
class StageRunner {
 public:
  // Makes the units of the stages in `parameters`. All references must outlive the runner.
  StageRunner(const ir::Plan& plan, Parameters& parameters, const ParallelContext& context, Activations& activations);

  // Before a program: what its units are told beside their microbatch. Without a call nothing is dropped or scaled.
  void begin(bool train, std::int64_t step, double loss_scale);

  // Input (or the batch) -> output and saved tensors, or the loss.
  void forward(int stage, int m, int unit, const Microbatch& batch, Keep keep, LossReduction& losses);

  // Gradient of the output and saved tensors -> gradient of the input, and weight work, from which the second adds to
  // the gradients' accumulators.
  void backward_input(int stage, int m, int unit);
  void backward_weight(int stage, int m, int unit);

  // Fills the saved blocks that the forward did not keep or that were freed, with the same bits.
  void recompute(int stage, int m, int unit, const Microbatch& batch, Recompute what);

  // Offload and Reload of saved block `slot` of ir/units.hpp, of both where it is -1, by lane copy.
  void offload(int stage, int m, int unit, int slot);
  void reload(int stage, int m, int unit, int slot);

  // Drops what recompute() of the same kind fills again.
  void free_saved(int stage, int m, int unit, Recompute what);

  bool has_stage(int stage) const {
    const auto s = static_cast<std::size_t>(stage);
    return s < local_.size() && local_[s] != nullptr;
  }
  int units(int stage) { return static_cast<int>(local(stage).units.size()); }

 private:
  struct LocalUnit {
    std::unique_ptr<Unit> run;
    bool cheap;                                             // saved_w can be dropped by itself
    std::int64_t saved_b, saved_w, work;                    // bytes of the blocks
    std::int64_t forward, backward_input, backward_weight;  // bytes of workspace
  };
  struct Local {  // a stage of this rank
    std::vector<LocalUnit> units;
    int previous;
    bool first, last;  // reads the batch; computes the loss
  };
  Local& local(int stage);
  LocalUnit make_local(const ir::Settings& settings, UnitParameters& parameters, const ParallelContext& context);
  template <class Move>
  void each_saved(int stage, int m, int unit, int slot, Move move);
  void move_block(Block& from, Block& to, std::int64_t bytes);
  Block take_input(const Local& here, int stage, int m, int unit);
  CallContext context(int m) const;

  Activations& activations_;
  std::optional<Rotary> rotary_;  // of all blocks
  CallContext step_;                   // of the program's first microbatch
  std::int64_t first_sample_, micro_;  // of this replica in the global batch; samples of a microbatch
  std::vector<std::unique_ptr<Local>> local_;  // by stage; null where another rank runs it
};

}  // namespace fem::exec
