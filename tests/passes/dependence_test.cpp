#include "passes/dependence.hpp"

#include <gtest/gtest.h>

#include "ir/builder.hpp"
#include "orders.hpp"
#include "passes/communication.hpp"
#include "passes/simulate.hpp"

namespace fem {
namespace {

using passes::RankOrder;
using passes::UnitCosts;
using test::Placement;

double length(const ir::Plan& plan, const passes::CostModel& costs, RankOrder order) {
  ir::DiagnosticSink sink;
  const auto path = passes::critical_path(plan, plan.programs[0], costs, order, sink);
  EXPECT_TRUE(path) << sink.text();
  return path ? path->length : -1;
}

double free_time(const ir::Plan& plan, const passes::CostModel& costs) {
  ir::DiagnosticSink sink;
  const auto run = passes::simulate(plan, plan.programs[0], costs, sink, {passes::Communication::Asynchronous});
  EXPECT_TRUE(run) << sink.text();
  return run ? run->step_time : -2;
}

ir::Plan lower(ir::Plan plan) {
  ir::DiagnosticSink sink;
  EXPECT_TRUE(passes::lower_communication(plan.stages, plan.programs[0], sink)) << sink.text();
  plan.level = ir::Level::Communication;
  return plan;
}

// The edges come from actions.def, the simulator's rules are its own: under free communication both must give the same
// time, before and after communication is in the plan.
TEST(Dependence, CriticalPathIsTheFreeMakespan) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const int p = 1 + static_cast<int>(seed % 5), m = 2 * (1 + static_cast<int>(seed % 3));
    const Placement placement = seed % 3 == 0   ? Placement::Loop
                                : seed % 3 == 1 ? Placement::V
                                                : Placement::Bidirectional;
    const int chunks = placement == Placement::V ? 2 : 1;
    const bool split = seed / 2 % 2;
    const ir::Plan plan =
        test::make_plan(placement, p, chunks, m, test::random_order(seed, placement, p, chunks, m, split, !split));
    // Small integers: sums in any order are exact.
    const UnitCosts costs(2 + seed % 3, 3, 1 + seed % 2, seed % 4);
    SCOPED_TRACE(seed);
    EXPECT_EQ(length(plan, costs, RankOrder::Kept), free_time(plan, costs));
    const ir::Plan lowered = lower(plan);
    EXPECT_EQ(length(lowered, costs, RankOrder::Kept), free_time(lowered, costs));
    EXPECT_LE(length(plan, costs, RankOrder::Free), length(plan, costs, RankOrder::Kept));
  }
}

// Sums have a fixed order, so the last stage runs its forwards (loss) and its backwards (accumulators) one by one even
// where ranks would have no limit: p-1 F to reach it, m F, m backwards, p-1 backwards to return. GPipe takes no longer
// than that.
TEST(Dependence, DataAloneBoundsEveryOrder) {
  const int p = 4, m = 8;
  const ir::Plan plan = test::make_plan(Placement::Loop, p, 1, m, test::gpipe(p, m));
  const UnitCosts costs(2, 3, 1);
  EXPECT_EQ(length(plan, costs, RankOrder::Free), (p - 1 + m) * (2 + 3 + 1));
  EXPECT_EQ(free_time(plan, costs), (p - 1 + m) * (2 + 3 + 1));
  // A forward-only program of two chunks a rank: a rank's own order costs time that data does not ask for.
  const ir::Plan eval = test::make_plan(Placement::Loop, 2, 2, 2, test::forwards_only(test::looped_bfs(2, 2, 2)), true);
  EXPECT_EQ(length(eval, costs, RankOrder::Free), 4 * 2 + 1 * 2);
  const ir::Plan one = test::make_plan(Placement::Loop, 1, 2, 2, test::forwards_only(test::looped_bfs(1, 2, 2)), true);
  EXPECT_EQ(length(one, costs, RankOrder::Free), 2 * 2 + 1 * 2);
  EXPECT_EQ(length(one, costs, RankOrder::Kept), 4 * 2);
}

TEST(Dependence, ThePathIsAChain) {
  const ir::Plan plan = lower(test::make_plan(Placement::Loop, 2, 1, 1, test::one_f_one_b(2, 1)));
  ir::DiagnosticSink sink;
  const auto path = passes::critical_path(plan, plan.programs[0], UnitCosts(2, 3, 1, 5), RankOrder::Kept, sink);
  ASSERT_TRUE(path) << sink.text();
  EXPECT_EQ(path->length, 2 + 5 + 2 + 4 + 5 + 4);
  std::vector<ir::ActionKind> kinds;
  for (const passes::ActionIndex& at : path->actions) {
    const ir::Action& a =
        plan.programs[0].ranks[static_cast<std::size_t>(at.rank)].actions[static_cast<std::size_t>(at.action)];
    if (a.microbatch >= 0) kinds.push_back(a.kind);
  }
  using enum ir::ActionKind;
  EXPECT_EQ(kinds,
            (std::vector{Forward, SendForward, RecvForward, Forward, Backward, SendBackward, RecvBackward, Backward}));
}

TEST(Dependence, ACycleIsAnError) {
  const ir::Plan plan =
      test::make_plan(Placement::Loop, 2, 1, 1, {test::read_order("0B0 0F0"), test::read_order("1F0 1B0")});
  ir::DiagnosticSink sink;
  EXPECT_FALSE(passes::critical_path(plan, plan.programs[0], UnitCosts(), RankOrder::Kept, sink));
  EXPECT_NE(sink.text().find("program train: actions depend on each other in a cycle"), std::string::npos)
      << sink.text();
}

}  // namespace
}  // namespace fem
