// What a rank holds in memory while it runs a program, to the byte: every block with its birth and its death.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/lane_order.hpp"
#include "ir/plan.hpp"
#include "ir/units.hpp"

namespace fem::ir {

enum class MemoryKind : std::uint8_t {
  Parameters,    // working copies in the compute format; in fp32 without sharded parameters the masters too
  Masters,       // fp32 masters where they are apart
  Gradients,     // fp32 accumulators and reduced gradients
  Optimizer,     // fp32 moments; blocks where they come from host memory
  Activations,   // what units and stages hand to each other, and what the backward needs of it
  Saved,         // what the forward keeps for the backward, but the units' inputs
  WeightWork,    // what BackwardInput keeps for BackwardWeight
  ActGradients,  // gradients of activations
  Workspace,     // scratch inside an action
  Communication,  // scratch of sums over a group, where the executor adds by itself: reduction_scratch.hpp
};
inline constexpr int kMemoryKinds = static_cast<int>(MemoryKind::Communication) + 1;
std::string_view name(MemoryKind kind);

// What memory.offload keeps in host memory between its uses. The state of the optimizer is there from step to step.
inline bool offloads_saved(const Settings& settings) {
  return settings.memory.offload == "saved" || settings.memory.offload == "all";
}
inline bool offloads_optimizer(const Settings& settings) {
  return settings.memory.offload == "optimizer" || settings.memory.offload == "all";
}

using KindBytes = std::array<std::int64_t, kMemoryKinds>;
std::int64_t total(const KindBytes& bytes);

// A block: it is there from the beginning of tick `birth` to the end of tick `death`.
struct MemoryBlock {
  MemoryKind kind;
  std::int16_t stage, unit;  // unit: whose block it is; of an activation between units, the one that it leaves
  std::int32_t microbatch;
  std::uint32_t birth, death;
  std::int64_t bytes;
  LaneCounts uses{};  // of each lane, the number of its last batch that uses it, from 1; 0: none
};

// The blocks of a rank in the order of their birth. A batch of actions is one tick; an action of a whole stage has one
// for each of its units, in the order in which they run.
struct RankBlocks {
  std::vector<MemoryBlock> blocks;
  std::vector<std::uint32_t> action;  // by tick: index of the action, the first of its batch
  std::int64_t host = 0;              // bytes of host memory that free lists by size hold for what is offloaded

  // The action that begins the block, the first of its batch.
  std::uint32_t birth_action(const MemoryBlock& block) const { return action[block.birth]; }
};
// Presumes a program whose operands are in range and whose dataflow is right. At level lane gathered parameters of
// parallel.zero=3 and gradients of parallel.reduce=microbatch are blocks, too, else units share a buffer: replicas.hpp.
// Moments that come from host memory are blocks at every level.
RankBlocks memory_blocks(const Plan& plan, const Program& program, std::size_t rank);

// What is there from beginning to end of every program: parameters, gradients, optimizer state, and the workspace and
// the scratch of the plan's most demanding actions.
KindBytes persistent_bytes(const Plan& plan, std::size_t rank);
// Of host memory: the optimizer state, where memory.offload says so.
std::int64_t persistent_host_bytes(const Plan& plan, std::size_t rank);

struct MemoryPeak {
  KindBytes persistent{}, blocks{};    // by kind, at the peak
  std::uint32_t tick = 0, action = 0;  // at which it is reached first
  std::int64_t live = 0;               // bytes of blocks at the peak
  std::int64_t pool = 0;   // bytes that free lists by size hold for the same blocks: live or more
  std::int64_t arena = 0;  // bytes of the rank's arena: live or more; 0: the plan has none
  std::int64_t host = 0;   // bytes of host memory, for what is offloaded; beside bytes()
  // What a rank must have. Without an arena free lists may hold more, up to `pool`.
  std::int64_t bytes() const { return total(persistent) + live + gaps(); }
  // Of the arena beside the blocks that are alive: what offsets and slack between lanes cost.
  std::int64_t gaps() const { return arena > 0 ? arena - live : 0; }
};
MemoryPeak memory_peak(const Plan& plan, const Program& program, std::size_t rank);

}  // namespace fem::ir
