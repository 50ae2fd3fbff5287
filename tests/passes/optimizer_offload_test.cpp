// Moments in host memory: when they come and go, what that overlaps, and what a rank holds of them.
#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/memory_blocks.hpp"
#include "ir/text.hpp"
#include "ir/units.hpp"
#include "orders.hpp"
#include "passes/manager.hpp"
#include "run_passes.hpp"

namespace fem {
namespace {

using ir::Action;
using ir::ActionKind;
using test::Placement;
using test::program_text;
using test::run_passes;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// One rank, units embedding, three blocks, head; offloads as the setting says.
ir::Plan offloading(std::int64_t zero, const std::string& what = "optimizer") {
  ir::Plan plan = test::make_plan(Placement::Loop, 1, 1, 2, test::gpipe(1, 2));
  plan.settings.model.layers = 3;
  plan.stages[0].units = 5;
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global *= 2;
  plan.settings.parallel.zero = zero;
  plan.settings.memory.offload = what;
  return plan;
}

const std::vector<Action>& actions(const ir::Plan& plan) { return plan.programs[0].ranks[0].actions; }

// The update's part of the program, in short: "L0 U0 O0".
std::string update(const ir::Plan& plan) {
  std::string out;
  for (const Action& a : actions(plan)) {
    const char letter = a.kind == ActionKind::ReloadOptimizer    ? 'L'
                        : a.kind == ActionKind::OptimizerStep    ? 'U'
                        : a.kind == ActionKind::OffloadOptimizer ? 'O'
                                                                 : 0;
    if (letter) out += (out.empty() ? "" : " ") + std::string(1, letter) + std::to_string(a.unit);
  }
  return out;
}

TEST(OptimizerOffload, MovesEachUnitsMomentsForItsUpdate) {
  const ir::Plan plan = run_passes("communication,units", offloading(0));
  EXPECT_EQ(update(plan), "L0 U0 O0 L1 U1 O1 L2 U2 O2 L3 U3 O3 L4 U4 O4");
  EXPECT_THAT(program_text(plan),
              EndsWith("ReloadOptimizer s0 u4\nOptimizerStep s0 u4 if finite\nOffloadOptimizer s0 u4\n"));
  // The working copies are gathered when all units are updated.
  EXPECT_THAT(program_text(run_passes("communication,units", offloading(1))),
              EndsWith("OffloadOptimizer s0 u4\nUnshard s0 over dp_cp\n"));
  EXPECT_EQ(update(run_passes("communication,units", offloading(0, "saved"))), "U-1");
}

// Each reload starts with the one so many before it, the first ones when nothing computes any more: before the sums.
TEST(OptimizerOffload, ReloadsAheadOfTheirUse) {
  const auto ahead = [](const std::string& distance) {
    return run_passes("communication,units,prefetch{distance=" + distance + "}", offloading(0));
  };
  EXPECT_EQ(update(ahead("0")), update(run_passes("communication,units", offloading(0))));
  EXPECT_EQ(update(ahead("1")), "L0 L1 U0 O0 L2 U1 O1 L3 U2 O2 L4 U3 O3 U4 O4");
  EXPECT_EQ(update(ahead("2")), "L0 L1 L2 U0 O0 L3 U1 O1 L4 U2 O2 U3 O3 U4 O4");
  EXPECT_EQ(update(ahead("9")), "L0 L1 L2 L3 L4 U0 O0 U1 O1 U2 O2 U3 O3 U4 O4");
  EXPECT_THAT(program_text(ahead("1")), HasSubstr("Backward s0 m0 u0\nReloadOptimizer s0 u0\nReduceLoss over world\n"));
  EXPECT_THAT(program_text(ahead("2")),
              HasSubstr("Backward s0 m0 u0\nReloadOptimizer s0 u0\nReloadOptimizer s0 u1\nReduceLoss over world\n"));
}

// On lanes a reload waits for the update two units before it at most, which frees its bytes, never for the one before.
TEST(OptimizerOffload, CopiesRunBesideUpdates) {
  const ir::Plan plan = run_passes("communication,units,prefetch,lanes,arena", offloading(0));
  const ir::RankProgram& rank = plan.programs[0].ranks[0];
  std::uint32_t computed = 0, steps = 0;
  std::vector<std::uint32_t> step_at;  // of each unit's update: its number on lane compute
  std::size_t reloads = 0;
  for (std::size_t i = 0; i < rank.actions.size(); ++i) {
    const Action& a = rank.actions[i];
    computed += a.lane == ir::Lane::Compute;
    if (a.kind == ActionKind::OptimizerStep) {
      step_at.push_back(computed);
      ++steps;
    }
    if (a.kind != ActionKind::ReloadOptimizer) continue;
    EXPECT_EQ(a.lane, ir::Lane::Copy);
    if (reloads++ < 2) continue;
    for (const ir::Wait& wait : rank.waits) {
      if (wait.action != i || wait.lane != ir::Lane::Compute) continue;
      EXPECT_LE(wait.count, step_at.at(reloads - 3));
    }
  }
  EXPECT_EQ(reloads, 5u);
  EXPECT_EQ(steps, 5u);
}

// 8 bytes for each parameter that the rank owns leave the device, but for what an update holds: one unit's, on lanes
// two's.
TEST(OptimizerOffload, MemoryIsTheUnitsInTheUpdate) {
  constexpr auto kOptimizer = static_cast<std::size_t>(ir::MemoryKind::Optimizer);
  for (const std::int64_t zero : {0, 1, 3}) {
    const ir::Plan kept = run_passes("communication,units", offloading(zero, "none"));
    const ir::Plan moved = run_passes("communication,units", offloading(zero));
    const std::int64_t all = ir::persistent_bytes(kept, 0)[kOptimizer];
    std::int64_t elements = 0;
    for (int unit = 0; unit < 5; ++unit)
      elements += ir::flat_elements(ir::unit_kind(kept.settings, unit), ir::unit_dims(kept.settings), 2);
    EXPECT_EQ(all, 8 * elements / (zero > 0 ? 2 : 1));
    EXPECT_EQ(ir::persistent_bytes(moved, 0)[kOptimizer], 0);
    EXPECT_EQ(ir::persistent_host_bytes(moved, 0), all);
    EXPECT_EQ(ir::persistent_host_bytes(kept, 0), 0);
    const ir::MemoryPeak before = ir::memory_peak(kept, kept.programs[0], 0),
                         after = ir::memory_peak(moved, moved.programs[0], 0);
    EXPECT_EQ(after.host, all);
    EXPECT_EQ(after.bytes(), before.bytes() - all);  // the activations' peak is another time
    std::int64_t moments = 0, held = 0, most = 0;
    for (const ir::MemoryBlock& block : ir::memory_blocks(moved, moved.programs[0], 0).blocks)
      if (block.kind == ir::MemoryKind::Optimizer) moments += block.bytes;
    EXPECT_EQ(moments, all);
    const ir::Plan lanes = run_passes("communication,units,prefetch,lanes,arena", offloading(zero));
    const ir::RankBlocks blocks = ir::memory_blocks(lanes, lanes.programs[0], 0);
    for (std::uint32_t tick = 0; tick < blocks.action.size(); ++tick) {
      held = 0;
      for (const ir::MemoryBlock& block : blocks.blocks)
        if (block.kind == ir::MemoryKind::Optimizer && block.birth <= tick && tick <= block.death) held += block.bytes;
      most = std::max(most, held);
    }
    const std::int64_t block = 8 * ir::flat_elements(ir::UnitKind::block, ir::unit_dims(kept.settings), 2) /
                               (zero > 0 ? 2 : 1);
    EXPECT_EQ(most, 2 * block);
  }
}

// Whatever the order of forwards and backwards: the plan verifies on its way down.
TEST(OptimizerOffload, AnyOrderVerifies) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const test::Order order = test::random_order(seed, Placement::V, 2, 2, 4, seed % 2, false);
    ir::Plan plan = test::make_plan(Placement::V, 2, 2, 4, order);
    plan.settings.parallel.dp = 2;
    plan.settings.batch.global *= 2;
    plan.settings.parallel.zero = seed % 4;
    plan.settings.memory.offload = seed % 3 ? "all" : "optimizer";
    plan.settings.overlap.lanes = true;
    const ir::Plan out = run_passes(passes::default_pipeline(plan.settings), plan);
    for (const ir::RankProgram& rank : out.programs[0].ranks)
      EXPECT_EQ(std::ranges::count(rank.actions, ActionKind::ReloadOptimizer, &Action::kind),
                std::ranges::count(rank.actions, ActionKind::OptimizerStep, &Action::kind));
  }
}

}  // namespace
}  // namespace fem
