#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/plans.hpp"

namespace fem::ir::testing {
namespace {

using ::testing::HasSubstr;

std::string errors(const Plan& plan) {
  DiagnosticSink sink;
  const bool ok = verify(plan, sink);
  EXPECT_EQ(ok, !sink.has_errors());
  return sink.text();
}

TEST(Verify, AcceptsEveryShapeAtBothLevels) {
  for (const PlanShape& shape : all_shapes()) {
    EXPECT_EQ(errors(stage_plan(shape)), "") << name(shape);
    EXPECT_EQ(errors(communication_plan(shape)), "") << name(shape);
  }
}

TEST(Verify, AcceptsAnOverlappedPairOfDifferentMicrobatches) {
  Plan plan = stage_plan({.pp = 1, .microbatches = 2});
  std::vector<Action>& actions = plan.programs[0].ranks[0].actions;
  ASSERT_EQ(action_text(std::span(actions).subspan(2)), "Backward s0 m0");
  ASSERT_EQ(action_text(std::span(actions).subspan(3)), "Forward s0 m1");
  std::swap(actions[2], actions[3]);
  actions[2].flags = Action::kJoined;
  EXPECT_EQ(errors(plan), "");
  actions[3].microbatch = 1;  // its own forward runs at the same time
  actions[4].microbatch = 0;
  EXPECT_THAT(errors(plan), HasSubstr("[V17]"));
}

TEST(Verify, AcceptsTwoDirectionsWhereEachMicrobatchTakesOne) {
  Plan plan = stage_plan({.pp = 2, .microbatches = 2, .order = Order::AllForwardThenBackward});
  plan.programs.resize(1);
  plan.stages.push_back({1, -1, 3, 0, 0, 2});
  plan.stages.push_back({0, 2, -1, 1, 2, 2});
  for (int r = 0; r < 2; ++r) {
    std::vector<Action> out;
    const int down = r, up = 3 - r;
    for (const int s : {down, up}) out.push_back(zero_grad(s));
    out.push_back(r == 0 ? forward(down, 0) : forward(up, 1));
    out.push_back(r == 0 ? forward(up, 1) : forward(down, 0));
    out.push_back(r == 0 ? backward(up, 1) : backward(down, 0));
    out.push_back(r == 0 ? backward(down, 0) : backward(up, 1));
    out.push_back(reduce_loss());
    for (const int part : {0, 1}) out.push_back(reduce_replica_grad(part == down ? down : up));
    for (const int s : {down, up}) out.push_back(all_reduce(s));
    out.push_back(grad_norm());
    for (const int s : {down, up}) out.push_back(clip_grad(s));
    for (const int s : {down, up}) out.push_back(optimizer_step(s));
    plan.programs[0].ranks[static_cast<std::size_t>(r)].actions = out;
  }
  EXPECT_EQ(errors(plan), "");
  Plan both = plan;  // microbatch 0 in the other direction as well
  std::vector<Action>& actions = both.programs[0].ranks[1].actions;
  actions.insert(actions.begin() + 2, {forward(2, 0), backward(2, 0)});
  EXPECT_THAT(errors(both),
              HasSubstr("microbatch 0 runs in the other direction, through the stages of the other chain [V12]"));
}

TEST(Verify, WithoutTextNamesProgramRankAndAction) {
  Plan plan = communication_plan({.pp = 2, .microbatches = 2, .batches = false});
  std::vector<Action>& actions = plan.programs[0].ranks[1].actions;
  ASSERT_EQ(action_text(std::span(actions).subspan(1)), "RecvForward s1 m0 from 0");
  actions[1].peer = 1;
  EXPECT_EQ(errors(plan),
            "error: program train, rank 1, action 1 (RecvForward s1 m0 from 1): the peer must be 0, the rank of prev "
            "stage 0, not 1 [V07]\n");
}

TEST(Verify, PrintsTheCircleOfADeadlock) {
  Plan plan = communication_plan({.pp = 2, .microbatches = 2, .batches = false});
  const SourceText source("p.plan", print_plan(plan));
  std::vector<Action>& first = plan.programs[0].ranks[0].actions;
  // Both ranks send before they receive.
  first = {zero_grad(0), forward(0, 0), send_forward(0, 0, 1), forward(0, 1), send_forward(0, 1, 1),
           recv_backward(0, 0, 1), backward(0, 0), recv_backward(0, 1, 1), backward(0, 1), reduce_loss(),
           all_reduce(0), grad_norm(), clip_grad(0), optimizer_step(0)};
  plan.programs[0].ranks[1].actions = {zero_grad(1), recv_forward(1, 0, 0), forward(1, 0), backward(1, 0),
                                       send_backward(1, 0, 0), recv_forward(1, 1, 0), forward(1, 1), backward(1, 1),
                                       send_backward(1, 1, 0), reduce_loss(), all_reduce(1), grad_norm(),
                                       clip_grad(1), optimizer_step(1)};
  EXPECT_THAT(errors(plan), HasSubstr("deadlock: rank 0 waits in SendForward s0 m1 to 1 (action 4) for rank 1, which "
                                      "waits in SendBackward s1 m0 to 0 (action 4) for rank 0 [V23]"));
}

TEST(Verify, LimitsTheErrorsOfOneKind) {
  Plan plan = communication_plan({.pp = 2, .microbatches = 7, .batches = false});
  for (Action& a : plan.programs[0].ranks[0].actions) a.label = 3;
  DiagnosticSink sink;
  EXPECT_FALSE(verify(plan, sink));
  EXPECT_EQ(sink.errors(), 5);
  EXPECT_THAT(sink.text(), HasSubstr("note: 29 more errors V10"));
}

// A million actions: 64 ranks, 1024 microbatches, two stages a rank. The limit is ctest's.
TEST(Verify, IsLinear) {
  const Plan plan = communication_plan(
      {.pp = 64, .microbatches = 1024, .order = Order::AllForwardThenBackward, .placement = Placement::V,
       .batches = false});
  std::size_t actions = 0;
  for (const RankProgram& rank : plan.programs[0].ranks) actions += rank.actions.size();
  EXPECT_GT(actions, 700000u);
  EXPECT_EQ(errors(plan), "");
}

TEST(Verify, HugeNumbersAreRefusedBeforeTheyAreAllocated) {
  Plan plan = communication_plan({.pp = 2, .microbatches = 2});
  plan.settings.batch.global = 2000000000;
  plan.programs[0].microbatches = 2000000000;
  EXPECT_THAT(errors(plan), HasSubstr("microbatches = 2000000000 over 2 stages, but the program has only"));
}

TEST(Invariants, EveryCodeIsExplained) {
  int n = 0;
  for (const InvariantInfo& row : invariants()) {
    ++n;
    EXPECT_EQ(row.code, (n < 10 ? "V0" : "V") + std::to_string(n));
    EXPECT_EQ(find_invariant(row.code), &row);
    EXPECT_GT(row.title.size(), 10u) << row.code;
    EXPECT_GT(row.explanation.size(), 120u) << row.code << ": a newcomer needs a reason and what to do";
    EXPECT_TRUE(row.explanation.ends_with('.')) << row.code;
  }
  EXPECT_EQ(find_invariant("V99"), nullptr);
}

}  // namespace
}  // namespace fem::ir::testing
