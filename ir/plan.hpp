// The plan: settings, stages and named programs. The only thing that femc hands to femrun.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/action.hpp"
#include "ir/settings.hpp"

namespace fem::ir {

// A contiguous part of the model on one pipeline rank.
struct Stage {
  std::int16_t pp = 0;         // pipeline coordinate that runs it
  std::int16_t prev = -1;      // stage whose output enters here; -1: reads the batch
  std::int16_t next = -1;      // stage that takes the output; -1: computes the loss
  std::int16_t replica_of = -1;  // stage with the same parameters in the other direction; -1: none
  std::int16_t first_unit = 0, units = 0;  // of the model's unit list: embedding, block 0.., head
  friend bool operator==(const Stage&, const Stage&) = default;
};

// Calls use(unit) for each unit of the stage that the action concerns, in the order in which they run: the one that it
// names, or all of them, in model order but for backwards and what serves them.
template <class Use>
void each_unit(const Stage& stage, const Action& action, Use use) {
  if (action.unit >= 0) return use(int{action.unit});
  const bool down = is_computation(action.kind) && action.kind != ActionKind::Forward;
  for (int i = 0; i < stage.units; ++i) use(stage.first_unit + (down ? stage.units - 1 - i : i));
}

// "lane L has finished its n-th action" (1-based) before action `action` may start.
struct Wait {
  std::uint32_t action;  // index into the rank's actions
  Lane lane;
  std::uint32_t count;
  friend bool operator==(const Wait&, const Wait&) = default;
};

// Calls use(unit) for each unit that the pipeline coordinate runs, by stage and in model order.
template <class Use>
void each_unit_of_rank(std::span<const Stage> stages, std::size_t rank, Use use) {
  for (const Stage& stage : stages) {
    if (static_cast<std::size_t>(stage.pp) != rank) continue;
    for (int unit = stage.first_unit; unit < stage.first_unit + stage.units; ++unit) use(unit);
  }
}

// Where in the rank's arena a block lies that a batch of actions begins (ir/memory_blocks.hpp).
struct ArenaOffset {
  std::uint32_t action;  // index of the batch's first action
  std::int64_t offset;   // bytes, a multiple of kBufferAlignment
  friend bool operator==(const ArenaOffset&, const ArenaOffset&) = default;
};

// The actions of one pipeline coordinate, the same for every dp, cp, tp and ep coordinate.
struct RankProgram {
  std::vector<Action> actions;
  std::vector<Wait> waits;           // sorted by action
  std::vector<ArenaOffset> offsets;  // one for each block of memory_blocks, in its order; none without an arena
  std::int64_t arena = 0;            // bytes
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

// Number of actions of the vector that form the batch starting at i (1 when not joined).
std::size_t batch_size(std::span<const Action> actions, std::size_t i);

struct Program {
  std::string name;  // "train", "eval"
  bool forward_only = false;
  std::int32_t microbatches = 0;
  std::vector<RankProgram> ranks;  // by pipeline coordinate
  friend bool operator==(const Program&, const Program&) = default;
};

struct Plan {
  static constexpr int kVersion = 1;

  Settings settings;
  Level level = Level::Stage;
  std::vector<Stage> stages;
  std::vector<Program> programs;

  const Program* find(std::string_view program) const;  // nullptr: none of that name
  friend bool operator==(const Plan&, const Plan&) = default;
};

// The stage that sends what a half of communication carries.
int sending_stage(std::span<const Stage> stages, const Action& half);
// A number for what it carries, by direction, sending stage and microbatch: below 2 * stages * microbatches.
std::size_t message_index(std::span<const Stage> stages, std::int64_t microbatches, const Action& half);

// Sequences per microbatch slot: batch.global / (dp * batch.micro).
std::int64_t microbatches(const Settings& settings);

// Where a line of the plan's text came from, so that verifier messages can point at it.
struct ActionLine {
  int line = 0, column = 0;
};
struct PlanLocations {
  std::vector<std::vector<std::vector<ActionLine>>> action;  // [program][rank][action]
  std::vector<int> section_line;             // [section of settings.def], 0: the header leaves it out
  std::vector<int> stage_line;               // [stage]
  std::vector<int> program_line;             // [program]
  std::vector<std::vector<int>> rank_line;   // [program][rank]
};

}  // namespace fem::ir
