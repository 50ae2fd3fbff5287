// What parallel.gather and parallel.reduce win on lanes: gathers and reductions that wait for what they need alone.
#include <algorithm>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "ir/units.hpp"
#include "orders.hpp"
#include "run_passes.hpp"

namespace fem {
namespace {

using ir::ActionKind;
using ir::Lane;
using test::Placement;

ir::Plan on_lanes(ir::Plan plan) {
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global *= 2;
  plan.settings.parallel.zero = 2;
  return test::run_passes("communication,units,lanes,arena", std::move(plan));
}

// With parallel.gather=forward the gathers of a program wait for nothing: they all run beside the first computations.
TEST(ShardedLanes, GathersBeforeUseWaitForNothing) {
  ir::Plan plan = test::make_plan(Placement::Loop, 1, 1, 4, test::gpipe(1, 4));
  plan.settings.parallel.gather = "forward";
  plan = on_lanes(plan);
  const ir::RankProgram& rank = plan.programs[0].ranks[0];
  std::size_t gathers = 0, awaited = 0;
  for (std::size_t i = 0; i < rank.actions.size(); ++i) {
    if (rank.actions[i].kind == ActionKind::Unshard) {
      ++gathers;
      EXPECT_EQ(std::ranges::count(rank.waits, i, &ir::Wait::action), 0);
    }
    if (rank.actions[i].kind != ActionKind::Forward || rank.actions[i].microbatch != 0) continue;
    for (const ir::Wait& wait : rank.waits) {
      awaited += wait.action == i && wait.lane == Lane::Collective && wait.count == gathers;
    }
  }
  EXPECT_EQ(gathers, static_cast<std::size_t>(ir::unit_count(plan.settings)));
  EXPECT_EQ(awaited, gathers);  // each unit's first forward waits for its own gather
}

// Reductions in buckets wait for the backward right before them, and no backward for a reduction.
TEST(ShardedLanes, BucketsRunBesideTheRestOfTheBackward) {
  ir::Plan plan = test::make_plan(Placement::Loop, 1, 1, 2, test::gpipe(1, 2));
  plan.settings.parallel.reduce = "bucket";
  plan.settings.parallel.bucket = "";
  plan = on_lanes(plan);
  const ir::RankProgram& rank = plan.programs[0].ranks[0];
  std::uint32_t computed = 0;  // compute batches so far
  std::size_t reductions = 0;
  for (std::size_t i = 0; i < rank.actions.size(); ++i) {
    computed += rank.actions[i].lane == Lane::Compute;
    if (rank.actions[i].kind != ActionKind::ReduceScatter) continue;
    ++reductions;
    EXPECT_EQ(rank.actions[i - 1].kind, ActionKind::Backward);
    EXPECT_EQ(rank.actions[i - 1].unit, rank.actions[i].unit);
    for (const ir::Wait& wait : rank.waits) EXPECT_TRUE(wait.action != i || wait.count == computed);
  }
  EXPECT_EQ(reductions, static_cast<std::size_t>(ir::unit_count(plan.settings)));
  // No computation of a backward waits for a reduction.
  for (const ir::Wait& wait : rank.waits) EXPECT_NE(rank.actions[wait.action].kind, ActionKind::Backward);
}

}  // namespace
}  // namespace fem
