#include "passes/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/builder.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "passes/communication.hpp"

namespace fem {
namespace {

using passes::Communication;
using passes::Simulation;
using passes::UnitCosts;
using test::Order;
using test::Placement;

Simulation run(const ir::Plan& plan, const passes::CostModel& costs, Communication communication) {
  ir::DiagnosticSink sink;
  auto result = passes::simulate(plan, plan.programs[0], costs, sink, {communication});
  EXPECT_TRUE(result) << sink.text();
  return result.value_or(Simulation{});
}

Simulation free_run(Placement placement, int p, int v, int m, Order order,
                    const passes::CostModel& costs = UnitCosts()) {
  return run(test::make_plan(placement, p, v, m, std::move(order)), costs, Communication::Asynchronous);
}

ir::Plan lowered(Placement placement, int p, int v, int m, Order order) {
  ir::Plan plan = test::make_plan(placement, p, v, m, std::move(order));
  ir::DiagnosticSink sink;
  EXPECT_TRUE(passes::lower_communication(plan.stages, plan.programs[0], sink)) << sink.text();
  plan.level = ir::Level::Communication;
  return plan;
}

std::vector<int> peaks(const Simulation& s) {
  std::vector<int> result;
  for (const passes::RankTimes& r : s.ranks) result.push_back(r.peak_in_flight);
  return result;
}

// Published and replayed unit-cost makespans, F = B = W = 1, communication free; chunked schedules in units of a chunk.
TEST(Simulate, UnitCostMakespans) {
  EXPECT_EQ(free_run(Placement::Loop, 4, 1, 8, test::one_f_one_b(4, 8)).makespan, 33);
  EXPECT_EQ(free_run(Placement::Loop, 4, 1, 8, test::gpipe(4, 8)).makespan, 33);
  EXPECT_EQ(free_run(Placement::Loop, 4, 2, 8, test::interleaved(4, 8, 2, 4)).makespan, 57);
  EXPECT_EQ(free_run(Placement::Loop, 4, 2, 8, test::looped_bfs(4, 8, 2)).makespan, 57);
  EXPECT_EQ(free_run(Placement::Loop, 4, 1, 8, test::zb_h(4, 8, 1)).makespan, 27);
  EXPECT_EQ(free_run(Placement::Bidirectional, 4, 1, 8, test::dualpipe(4, 8)).makespan, 26);
  EXPECT_EQ(free_run(Placement::V, 4, 2, 8, test::dualpipe_v(4, 8)).makespan, 54);
  EXPECT_EQ(free_run(Placement::Loop, 8, 1, 24, test::one_f_one_b(8, 24)).makespan, 93);
  EXPECT_EQ(free_run(Placement::Loop, 8, 2, 24, test::interleaved(8, 24, 2, 8)).makespan, 165);
  EXPECT_EQ(free_run(Placement::Loop, 8, 1, 24, test::zb_h(8, 24, 1)).makespan, 79);
}

TEST(Simulate, StageSpanIsNotMakespan) {
  const Simulation h2 = free_run(Placement::Loop, 4, 1, 8, test::zb_h(4, 8, 2));
  EXPECT_EQ(h2.makespan, 27);
  EXPECT_EQ(h2.stage_span, 24);
  EXPECT_EQ(h2.makespan_bubble().time, 3);
  EXPECT_EQ(h2.stage_span_bubble().time, 0);
  const Simulation large = free_run(Placement::Loop, 8, 1, 24, test::zb_h(8, 24, 2));
  EXPECT_EQ(large.makespan, 79);
  EXPECT_EQ(large.stage_span, 72);
}

// 1F1B: bubble (p-1)(F+B+W), (p-1)/m of the ideal time and (p-1)/(m+p-1) of the total.
TEST(Simulate, BubbleRatios) {
  const passes::Bubble bubble =
      free_run(Placement::Loop, 4, 1, 8, test::one_f_one_b(4, 8), UnitCosts(2, 3, 1)).makespan_bubble();
  EXPECT_DOUBLE_EQ(bubble.time, 3 * (2 + 3 + 1));
  EXPECT_DOUBLE_EQ(bubble.over_ideal, 3.0 / 8);
  EXPECT_DOUBLE_EQ(bubble.over_total, 3.0 / 11);
}

// Bubble of the closed forms on other costs: H1 (p-1)(F+B-W), H2 (p-1)(F+B-2W) of the stage span (arXiv 2401.10241).
TEST(Simulate, ZeroBubbleClosedForms) {
  const UnitCosts costs(10, 12, 8);
  EXPECT_DOUBLE_EQ(free_run(Placement::Loop, 4, 1, 12, test::zb_h(4, 12, 1), costs).makespan_bubble().time,
                   3 * (10 + 12 - 8));
  EXPECT_DOUBLE_EQ(free_run(Placement::Loop, 4, 1, 12, test::zb_h(4, 12, 2), costs).stage_span_bubble().time,
                   3 * (10 + 12 - 16));
}

// arXiv 2401.10241 tables 5 and 9: stage-span bubble rates from profiled costs (T_F, T_B, T_W, T_comm in ms).
TEST(Simulate, PublishedBubbleRates) {
  struct Row {
    int p, m;
    double f, b, w, comm, rate_1f1b, rate_h1, rate_h2;
  };
  const Row rows[] = {
      {8, 24, 18.522, 18.086, 9.337, .601, .2431, .1585, .1083},
      {8, 32, 18.513, 18.086, 9.331, .626, .1985, .1242, .0837},
      {8, 64, 18.546, 18.097, 9.321, .762, .1240, .0674, .0444},
      {8, 24, 29.718, 29.444, 19.927, .527, .2347, .1323, .0698},
      {16, 48, 11.347, 11.248, 8.132, .377, .2552, .1397, .0672},
      {32, 96, 10.419, 10.207, 7.715, .408, .2646, .1421, .0641},
  };
  for (const Row& row : rows) {
    const UnitCosts costs(row.f, row.b, row.w, row.comm);
    auto rate = [&](Order order) {
      return free_run(Placement::Loop, row.p, 1, row.m, std::move(order), costs).stage_span_bubble().over_total;
    };
    EXPECT_NEAR(rate(test::one_f_one_b(row.p, row.m)), row.rate_1f1b, 6e-5) << row.p << " " << row.m;
    EXPECT_NEAR(rate(test::zb_h(row.p, row.m, 1)), row.rate_h1, 6e-5) << row.p << " " << row.m;
    EXPECT_NEAR(rate(test::zb_h(row.p, row.m, 2)), row.rate_h2, 6e-5) << row.p << " " << row.m;
  }
}

TEST(Simulate, PeaksInFlight) {
  using V = std::vector<int>;
  EXPECT_EQ(peaks(free_run(Placement::Loop, 4, 1, 8, test::gpipe(4, 8))), (V{8, 8, 8, 8}));
  EXPECT_EQ(peaks(free_run(Placement::Loop, 4, 1, 8, test::one_f_one_b(4, 8))), (V{4, 3, 2, 1}));
  EXPECT_EQ(peaks(free_run(Placement::Loop, 4, 2, 8, test::looped_bfs(4, 8, 2))), (V{16, 16, 16, 16}));
  EXPECT_EQ(peaks(free_run(Placement::Loop, 4, 2, 8, test::interleaved(4, 8, 2, 4))), (V{11, 9, 7, 5}));
  EXPECT_EQ(peaks(free_run(Placement::Loop, 4, 1, 8, test::zb_h(4, 8, 1))), (V{4, 4, 4, 4}));
  EXPECT_EQ(peaks(free_run(Placement::Loop, 4, 1, 8, test::zb_h(4, 8, 2))), (V{7, 7, 7, 7}));
  EXPECT_EQ(peaks(free_run(Placement::V, 4, 2, 8, test::dualpipe_v(4, 8))), (V{9, 9, 9, 9}));
  EXPECT_EQ(peaks(free_run(Placement::Bidirectional, 4, 1, 8, test::dualpipe(4, 8))), (V{5, 5, 5, 5}));
}

// F&B is one block of cost F + BW whose outputs come at its end: at F = B, p = 8, m = 20 makespan 66, idle 6 (in units
// of F = B, W inside B: F = 1, BW = 2, W = 1).
TEST(Simulate, OverlappedPairsCostTheirSum) {
  const Simulation s = free_run(Placement::Bidirectional, 8, 1, 20, test::dualpipe(8, 20));
  EXPECT_EQ(s.makespan, 66);
  EXPECT_EQ(s.makespan_bubble().time, 6);
}

// Two ranks, one microbatch, F=2 B=3 W=1, transfer 5, by hand: F 0..2, sent 2..7, F 7..9, B 9..13, sent 13..18,
// B 18..22.
TEST(Simulate, RendezvousTimesByHand) {
  const ir::Plan plan = lowered(Placement::Loop, 2, 1, 1, test::one_f_one_b(2, 1));
  const Simulation s = run(plan, UnitCosts(2, 3, 1, 5), Communication::Rendezvous);
  auto find = [&](int r, ir::ActionKind kind) {
    const auto& actions = plan.programs[0].ranks[static_cast<std::size_t>(r)].actions;
    for (std::size_t i = 0; i < actions.size(); ++i)
      if (actions[i].kind == kind)
        return std::pair(s.actions[static_cast<std::size_t>(r)][i].start,
                         s.actions[static_cast<std::size_t>(r)][i].end);
    return std::pair(-1.0, -1.0);
  };
  EXPECT_EQ(find(0, ir::ActionKind::Forward), std::pair(0.0, 2.0));
  EXPECT_EQ(find(0, ir::ActionKind::SendForward), std::pair(2.0, 7.0));
  EXPECT_EQ(find(1, ir::ActionKind::RecvForward), std::pair(0.0, 7.0));  // reached at 0, waits
  EXPECT_EQ(find(1, ir::ActionKind::Forward), std::pair(7.0, 9.0));
  EXPECT_EQ(find(1, ir::ActionKind::Backward), std::pair(9.0, 13.0));
  EXPECT_EQ(find(0, ir::ActionKind::Backward), std::pair(18.0, 22.0));
  EXPECT_EQ(s.makespan, 22);
  EXPECT_EQ(s.step_time, 22);
  EXPECT_EQ(s.ranks[0].busy, 6);
  EXPECT_EQ(s.ranks[0].waiting, 16);
  EXPECT_EQ(s.ranks[1].waiting, 0);
  EXPECT_EQ(s.ideal, 6);
}

// Blocking sends cannot be faster than free ones, and what a rank computes does not change.
TEST(Simulate, RendezvousIsNeverFasterThanFree) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const int p = 2 + static_cast<int>(seed % 4);
    const ir::Plan plan =
        lowered(Placement::V, p, 2, 4, test::random_order(seed, Placement::V, p, 2, 4, seed % 2, false));
    const UnitCosts costs(2, 3, 1);
    const Simulation serial = run(plan, costs, Communication::Rendezvous),
                     free = run(plan, costs, Communication::Asynchronous);
    EXPECT_GE(serial.makespan, free.makespan) << seed;
    EXPECT_EQ(serial.ideal, free.ideal) << seed;
    EXPECT_EQ(peaks(serial), peaks(free)) << seed;
  }
}

// Splits a batch, joins two, or swaps two neighbours on one rank.
void mutate(std::vector<ir::Action>& actions, std::mt19937& random) {
  const std::size_t i = std::uniform_int_distribution<std::size_t>(0, actions.size() - 2)(random);
  if (ir::is_p2p(actions[i].kind) && ir::is_p2p(actions[i + 1].kind)) {
    actions[i].flags ^= ir::Action::kJoined;
  } else if (!actions[i].joined() && !actions[i + 1].joined() && (i == 0 || !actions[i - 1].joined())) {
    std::swap(actions[i], actions[i + 1]);
  }
}

// Two programs written apart, the verifier's run without times and the simulator's with times, must agree on what
// blocks.
TEST(Simulate, AgreesWithTheVerifierOnDeadlock) {
  int blocked = 0, free = 0;
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    const int p = 2 + static_cast<int>(seed % 4);
    const Placement placement = seed % 2 ? Placement::V : Placement::Loop;
    ir::Plan plan = lowered(placement, p, 2, 4, test::random_order(seed, placement, p, 2, 4, seed % 3 == 0, false));
    if (seed / 4 % 2) {  // every half by itself: blocks wherever two ranks send to each other
      for (ir::RankProgram& rank : plan.programs[0].ranks) {
        for (ir::Action& a : rank.actions) a.flags &= static_cast<std::uint8_t>(~ir::Action::kJoined);
      }
    }
    for (int k = 0; k < 2; ++k) mutate(plan.programs[0].ranks[random() % static_cast<std::size_t>(p)].actions, random);
    ir::DiagnosticSink verifier, simulator;
    ir::verify(plan, verifier);
    const bool other_faults = std::ranges::any_of(
        verifier.all(), [](const ir::Diagnostic& d) { return d.severity == ir::Severity::Error && d.code != "V23"; });
    if (other_faults) continue;
    const bool runs = passes::simulate(plan, plan.programs[0], UnitCosts(), simulator).has_value();
    EXPECT_EQ(runs, !verifier.has_errors()) << "seed " << seed << "\n" << verifier.text() << simulator.text();
    ++(runs ? free : blocked);
  }
  EXPECT_GT(blocked, 100);
  EXPECT_GT(free, 100);
}

TEST(Simulate, BlockedProgramsAreNamed) {
  // What 1F1B becomes when every send and receive stands alone: ranks 0 and 1 both send first.
  ir::Plan plan = test::make_plan(Placement::Loop, 2, 1, 1, test::one_f_one_b(2, 1));
  auto& ranks = plan.programs[0].ranks;
  ranks[0].actions = {ir::forward(0, 0), ir::recv_backward(0, 0, 1), ir::send_forward(0, 0, 1), ir::backward(0, 0)};
  ranks[1].actions = {ir::recv_forward(1, 0, 0), ir::forward(1, 0), ir::backward(1, 0), ir::send_backward(1, 0, 0)};
  ir::DiagnosticSink sink;
  EXPECT_FALSE(passes::simulate(plan, plan.programs[0], UnitCosts(), sink));
  EXPECT_NE(
      sink.text().find(
          "program train blocks: rank 0 waits at RecvBackward s0 m0 from 1, rank 1 waits at RecvForward s1 m0 from 0"),
      std::string::npos)
      << sink.text();
}

TEST(Simulate, ALostPeerIsNamed) {
  ir::Plan plan = test::make_plan(Placement::Loop, 2, 1, 1, test::one_f_one_b(2, 1));
  plan.programs[0].ranks[0].actions = {ir::forward(0, 0), ir::send_forward(0, 0, 1)};
  plan.programs[0].ranks[1].actions.clear();
  ir::DiagnosticSink sink;
  EXPECT_FALSE(passes::simulate(plan, plan.programs[0], UnitCosts(), sink));
  EXPECT_NE(sink.text().find("rank 0 waits at SendForward s0 m0 to 1, rank 1 has ended"), std::string::npos)
      << sink.text();
}

TEST(Simulate, OperandsOutOfRangeAreAnError) {
  ir::Plan plan = test::make_plan(Placement::Loop, 2, 1, 1, test::one_f_one_b(2, 1));
  plan.programs[0].ranks[0].actions.push_back(ir::forward(7, 0));
  ir::DiagnosticSink sink;
  EXPECT_FALSE(passes::simulate(plan, plan.programs[0], UnitCosts(), sink));
  EXPECT_NE(sink.text().find("Forward s7 m0 names a stage, microbatch or rank that does not exist"), std::string::npos)
      << sink.text();
}

}  // namespace
}  // namespace fem
