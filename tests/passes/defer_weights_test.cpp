// Weight gradients that run later: where they go, what stays as it was, and what the verifier says of one too many.
#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "run_passes.hpp"
#include "passes/simulate.hpp"

namespace fem {
namespace {

using ir::Action;
using ir::ActionKind;
using test::Placement;
using test::run_passes;

const std::vector<Action>& actions(const ir::Plan& plan, int rank) {
  return plan.programs[0].ranks[static_cast<std::size_t>(rank)].actions;
}

std::string order(const ir::Plan& plan, int rank) { return test::compute_text(actions(plan, rank)); }

TEST(DeferWeights, WholeBackwardsAreSplit) {
  const ir::Plan plan = test::make_plan(Placement::Loop, 2, 1, 4, test::one_f_one_b(2, 4));
  EXPECT_EQ(order(plan, 1), "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
  EXPECT_EQ(order(run_passes("defer_weights", plan), 1), "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3");
  EXPECT_EQ(order(run_passes("defer_weights{distance=3}", plan), 1), "1F0 1I0 1F1 1I1 1F2 1I2 1F3 1I3 1W0 1W1 1W2 1W3");
  EXPECT_EQ(order(run_passes("defer_weights{distance=3}", plan), 0), "0F0 0F1 0I0 0F2 0I1 0F3 0I2 0I3 0W0 0W1 0W2 0W3");
  EXPECT_EQ(run_passes("defer_weights{distance=0}", plan), plan);
}

// Of a split schedule each W moves on by as many backwards; ZB-H1 has them r backwards after their own already.
TEST(DeferWeights, SplitSchedulesMoveOn) {
  const ir::Plan plan = test::make_plan(Placement::Loop, 2, 1, 4, test::zb_h(2, 4, 1));
  EXPECT_EQ(order(plan, 1), "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3");
  EXPECT_EQ(order(run_passes("defer_weights", plan), 1), "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3");
}

// A whole backward in an overlapped pair stays whole: what waits on its stage runs before it, another stage's may wait.
TEST(DeferWeights, OverlappedPairsStay) {
  std::vector<Action> list = test::read_order("0F0 1F0 1B0 0B0 0F1 1F1 1B1 0F2 0B1 1F2 1B2 0B2");
  list[7].flags |= Action::kJoined;
  const ir::Plan plan = test::make_plan(Placement::V, 1, 2, 3, {list});
  EXPECT_EQ(order(plan, 0), "0F0 1F0 1B0 0B0 0F1 1F1 1B1 (0F2;0B1) 1F2 1B2 0B2");
  EXPECT_EQ(order(run_passes("defer_weights{distance=9}", plan), 0),
            "0F0 1F0 1I0 0I0 0F1 1F1 1I1 1W0 0W0 (0F2;0B1) 1F2 1I2 0I2 1W1 1W2 0W2");
}

// Losses and weights keep their bits: on each stage the accumulators receive the microbatches in the order of before.
std::map<int, std::vector<int>> weight_order(const std::vector<Action>& actions) {
  std::map<int, std::vector<int>> order;
  for (const Action& a : actions) {
    if (a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardWeight) order[a.stage].push_back(a.microbatch);
  }
  return order;
}

// By stage and microbatch: backwards of the rank (whole or input) before the weight gradient ran.
std::map<std::pair<int, int>, int> weight_times(const std::vector<Action>& actions) {
  std::map<std::pair<int, int>, int> times;
  int backwards = 0;
  for (const Action& a : actions) {
    backwards += a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardInput;
    const bool weight = a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardWeight;
    if (weight) times[{a.stage, a.microbatch}] = backwards;
  }
  return times;
}

// Everything else in its place, a whole backward counting as an input gradient.
std::vector<std::tuple<ActionKind, int, int>> others(const std::vector<Action>& actions) {
  std::vector<std::tuple<ActionKind, int, int>> list;
  for (const Action& a : actions) {
    if (a.kind == ActionKind::BackwardWeight) continue;
    list.emplace_back(a.kind == ActionKind::Backward ? ActionKind::BackwardInput : a.kind, a.stage, a.microbatch);
  }
  return list;
}

TEST(DeferWeights, RandomOrdersKeepEverythingButTheTime) {
  int moved = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const bool v_shape = seed % 2, split = seed % 3 == 0, pairs = seed % 5 == 0;
    const Placement placement = v_shape ? Placement::V : Placement::Loop;
    const ir::Plan plan =
        test::make_plan(placement, 3, 2, 5, test::random_order(seed, placement, 3, 2, 5, split, pairs));
    for (int distance : {1, 2, 4, 1000}) {
      const std::string pass = "defer_weights{distance=" + std::to_string(distance) + "}";
      const ir::Plan deferred = run_passes(pass, plan);
      for (int rank = 0; rank < 3; ++rank) {
        const auto &before = actions(plan, rank), &after = actions(deferred, rank);
        ASSERT_EQ(weight_order(after), weight_order(before)) << "seed " << seed;
        ASSERT_EQ(others(after), others(before)) << "seed " << seed;
        const auto times = weight_times(after);
        for (const auto& [key, time] : weight_times(before)) {
          EXPECT_GE(times.at(key), time);
          EXPECT_LE(times.at(key), time + distance);
          moved += times.at(key) > time;
        }
      }
      run_passes(pass + ",communication", plan);  // the manager verifies, deadlock and dataflow among the rest
    }
  }
  EXPECT_GT(moved, 1000);
}

// What it is for: with m=8, p=4 at unit costs 1F1B takes (m + p - 1)(F + B) = 33; input gradients that do not wait for
// weight gradients come sooner (arXiv 2401.10241, section 2).
TEST(DeferWeights, ShortensTheMakespan) {
  ir::DiagnosticSink sink;
  const ir::Plan plan = test::make_plan(Placement::Loop, 4, 1, 8, test::one_f_one_b(4, 8));
  const auto makespan = [&](const ir::Plan& p) {
    const passes::SimulateOptions options = {passes::Communication::Asynchronous};
    return passes::simulate(p, p.programs[0], passes::UnitCosts(), sink, options)->makespan;
  };
  EXPECT_EQ(makespan(plan), 33);
  EXPECT_LT(makespan(run_passes("defer_weights{distance=3}", plan)), 33);
}

// One step too far: the verifier names the rule.
std::string with_weight_behind(ActionKind kind, bool tied) {
  ir::Plan plan = run_passes("defer_weights", test::make_plan(Placement::Loop, 2, 1, 4, test::one_f_one_b(2, 4)));
  plan.settings.model.tied = tied;
  for (int rank = 0; rank < 2; ++rank) {
    auto& list = plan.programs[0].ranks[static_cast<std::size_t>(rank)].actions;
    const auto loss = std::ranges::find(list, ActionKind::ReduceLoss, &Action::kind);
    if (tied) list.insert(loss + 1, ir::reduce_tied_grad(rank));
  }
  ir::DiagnosticSink sink;
  EXPECT_TRUE(ir::verify(plan, sink)) << sink.text();
  auto& list = plan.programs[0].ranks[0].actions;
  const auto weight = std::find(list.rbegin(), list.rend(), ir::backward_weight(0, 3)).base() - 1;
  const auto behind = std::ranges::find(list, kind, &Action::kind);
  std::rotate(weight, weight + 1, behind + 1);
  EXPECT_FALSE(ir::verify(plan, sink));
  return sink.all().empty() ? "" : sink.all()[0].code;
}

TEST(DeferWeights, AWeightGradientBehindItsReductionIsRefused) {
  EXPECT_EQ(with_weight_behind(ActionKind::AllReduce, false), "V18");
  EXPECT_EQ(with_weight_behind(ActionKind::ReduceTiedGrad, true), "V16");
}

}  // namespace
}  // namespace fem
