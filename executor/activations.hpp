// The buffers that a program's forwards and backwards hand to each other on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/block_pool.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// What one unit holds for one microbatch. The input is a share of the block that the unit before wrote, so that it
// lives as long as either needs it; so is the output's gradient.
struct UnitBlocks {
  Block input;             // kept for BackwardInput
  Block output;            // on its way to the next unit of the stage
  Block saved_b, saved_w;  // until BackwardInput, until BackwardWeight
  Block grad_output;       // on its way from the next unit of the stage; then kept for BackwardWeight
  Block work;              // until BackwardWeight
  Block host_b, host_w;    // copies in host memory, from Offload to Reload
};

// Activations, gradients, saved tensors and weight work by stage and microbatch. A buffer lives from the action that
// writes it to the action that kills it (ir/actions.def); both are counted, so that a program that leaks is found out.
//
// output(s,m) and grad_output(s,m) have one slot each; the input of stage s is the output of the stage before it,
// whether that was computed or received here, and likewise for gradients.
class Activations {
 public:
  // Slots for programs of up to `microbatches` microbatches, all empty; blocks come from the device's allocator.
  Activations(const ir::Plan& plan, int microbatches, c10::Device device = c10::kCPU);

  // Flat index of (stage, microbatch); also the tag of its transfer.
  std::int64_t index(int stage, int microbatch) const { return std::int64_t{stage} * microbatches_ + microbatch; }
  std::int64_t slots() const { return static_cast<std::int64_t>(outputs_.size()); }

  void put_output(std::int64_t index, Block value) { put(outputs_, index, std::move(value)); }
  void put_gradient(std::int64_t index, Block value) { put(gradients_, index, std::move(value)); }
  Block take_output(std::int64_t index) { return take(outputs_, index); }
  Block take_gradient(std::int64_t index) { return take(gradients_, index); }

  // Unit `unit` of the stage, counted from its first.
  UnitBlocks& unit(std::int64_t index, std::size_t unit) { return units_[static_cast<std::size_t>(index)][unit]; }

  // An activation or its gradient, [micro, seq_len, hidden] in the compute format: memory, and bytes of a transfer.
  Block activation(ir::Lane lane = ir::Lane::Compute) { return pool_.take(activation_block_, lane); }
  std::size_t activation_bytes() const { return activation_bytes_; }

  BlockPool& pool() { return pool_; }
  BlockPool& host_pool() { return host_pool_; }
  const BlockPool& host_pool() const { return host_pool_; }
  const BlockPool& pool() const { return pool_; }

  // Releases everything, after an error or before another program.
  void clear();
  // Number of shares of blocks that are held: 0 between programs.
  std::int64_t alive() const;

 private:
  using Slots = std::vector<Block>;
  static void put(Slots& slots, std::int64_t index, Block value);
  static Block take(Slots& slots, std::int64_t index);

  std::int64_t microbatches_;
  std::size_t activation_bytes_;
  std::int64_t activation_block_;
  BlockPool pool_, host_pool_;  // before the blocks that return to them; lane copy alone uses the second
  Slots outputs_, gradients_;
  std::vector<std::vector<UnitBlocks>> units_;
};

}  // namespace fem::exec
