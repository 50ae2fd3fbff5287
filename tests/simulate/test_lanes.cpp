// Plans with lanes on paper: times by hand, waits kept, and never longer than one action after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>

#include "compiler/profile_reader.hpp"
#include "ir/builder.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "passes/communication.hpp"
#include "passes/cost_model.hpp"
#include "passes/manager.hpp"
#include "passes/overlap.hpp"
#include "passes/simulate.hpp"
#include "support.hpp"
#include "tests/ir/lane_programs.hpp"

namespace fem {
namespace {

using ir::ActionKind;
using passes::ActionTime;
using passes::Communication;
using passes::Simulation;
using passes::UnitCosts;

Simulation run(const ir::Plan& plan, const passes::CostModel& costs) {
  ir::DiagnosticSink sink;
  auto result = passes::simulate(plan, plan.programs[0], costs, sink, {Communication::Rendezvous});
  EXPECT_TRUE(result) << sink.text();
  return result.value_or(Simulation{});
}

// A plan at communication level.
ir::Plan lowered(test::Placement placement, int p, int v, int m, test::Order order) {
  ir::Plan plan = test::make_plan(placement, p, v, m, std::move(order));
  ir::DiagnosticSink sink;
  EXPECT_TRUE(passes::lower_communication(plan.stages, plan.programs[0], sink)) << sink.text();
  plan.level = ir::Level::Communication;
  return plan;
}

// The same actions in the same order, each rank one after the other.
ir::Plan without_lanes(ir::Plan plan) {
  plan.level = ir::Level::Communication;
  for (ir::RankProgram& rank : plan.programs[0].ranks) rank.waits.clear();
  return plan;
}

using Span = std::pair<double, double>;
Span time_of(const ir::Plan& plan, const Simulation& s, std::size_t rank, ActionKind kind, int microbatch = -1) {
  const auto& actions = plan.programs[0].ranks[rank].actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != kind || actions[i].microbatch != microbatch) continue;
    return {s.actions[rank][i].start, s.actions[rank][i].end};
  }
  return {-1, -1};
}

// The plan of tests/ir/lanes, F=2, B=4, a message 5. Rank 0 runs its second forward while the first is sent (2 to 7);
// the batch of two halves is reached at 7 there, at 13 on rank 1 after its backward (9 to 13), and takes until 18.
TEST(SimulateLanes, HandMadePlanByHand) {
  std::ifstream in("tests/ir/lanes/1f1b.plan");
  std::stringstream text;
  text << in.rdbuf();
  ir::DiagnosticSink sink;
  const auto plan = ir::parse_plan(ir::SourceText("1f1b.plan", text.str()), sink);
  ASSERT_TRUE(plan) << sink.text();
  const Simulation s = run(*plan, UnitCosts(2, 3, 1, 5));
  EXPECT_EQ(time_of(*plan, s, 0, ActionKind::Forward, 0), Span(0, 2));
  EXPECT_EQ(time_of(*plan, s, 0, ActionKind::Forward, 1), Span(2, 4));
  EXPECT_EQ(time_of(*plan, s, 0, ActionKind::SendForward, 0), Span(2, 7));
  EXPECT_EQ(time_of(*plan, s, 1, ActionKind::RecvForward, 0), Span(2, 7));  // with the message, not when it was reached
  EXPECT_EQ(time_of(*plan, s, 1, ActionKind::Backward, 0), Span(9, 13));
  EXPECT_EQ(time_of(*plan, s, 0, ActionKind::RecvBackward, 0), Span(13, 18));
  EXPECT_EQ(time_of(*plan, s, 1, ActionKind::RecvForward, 1), Span(13, 18));
  EXPECT_EQ(time_of(*plan, s, 0, ActionKind::Backward, 1), Span(29, 33));
  EXPECT_EQ(time_of(*plan, s, 0, ActionKind::ReduceLoss), Span(20, 20));  // rank 1's last forward ends
  EXPECT_EQ(time_of(*plan, s, 1, ActionKind::AllReduce), Span(24, 24));
  EXPECT_EQ(time_of(*plan, s, 1, ActionKind::GradNorm), Span(33, 33));
  EXPECT_EQ(s.step_time, 33);
  EXPECT_EQ(s.ranks[0].busy, 12);
  EXPECT_EQ(s.ranks[0].waiting, 21);
  EXPECT_EQ(s.ranks[0].overlap, 2);  // F m1 during the first message
  EXPECT_EQ(s.ranks[1].overlap, 0);
}

// GPipe on two ranks, F=2, B=4, a message 1. Lanes: F 0-2, 2-4; sent 2-3, 4-5; F 3-5, 5-7; B 7-11, 11-15; sent 11-12,
// 15-16; B 12-16, 16-20. One after the other: F 0-2, sent 2-3, F 3-5, sent 5-6; F 3-5, 6-8; B 8-12, sent 12-13, B
// 13-17, sent 17-18; B 13-17, 18-22.
TEST(SimulateLanes, MessagesBesideComputation) {
  const ir::Plan serial = lowered(test::Placement::Loop, 2, 1, 2, test::gpipe(2, 2));
  const ir::Plan lanes = ir::testing::lane_plan(serial);
  const UnitCosts costs(2, 3, 1, 1);
  EXPECT_EQ(run(serial, costs).step_time, 22);
  EXPECT_EQ(run(serial, costs).ranks[0].overlap, 0);
  const Simulation s = run(lanes, costs);
  EXPECT_EQ(s.step_time, 20);
  EXPECT_EQ(s.ranks[0].overlap, 2);  // the first message with F m1, the last with B m1
  EXPECT_EQ(s.ranks[1].overlap, 2);
  EXPECT_EQ(s.ranks[0].peak_in_flight, 2);
  // What communication may hold up no rank does to a serial plan, it does to one with lanes.
  ir::DiagnosticSink sink;
  const auto free = passes::simulate(lanes, lanes.programs[0], costs, sink, {Communication::Asynchronous});
  ASSERT_TRUE(free);
  EXPECT_EQ(free->step_time, 20);
}

// Reductions take 10 and 6, a forward 4.
class Collectives final : public passes::CostModel {
 public:
  double action(const ir::Plan&, int, const ir::Action& a, const ir::Action*) const override {
    return a.kind == ActionKind::AllReduce ? 10 : a.kind == ActionKind::ReduceLoss ? 6 : 4;
  }
  double transfer(const ir::Plan&, int, int, const ir::Action&) const override { return 0; }
};

TEST(SimulateLanes, ACollectiveRunsBesideWhatDoesNotWaitForIt) {
  ir::Plan plan = test::make_plan(test::Placement::Loop, 2, 1, 4, test::one_f_one_b(2, 4));
  plan.level = ir::Level::Lane;
  auto& ranks = plan.programs[0].ranks;
  // Rank 0: forwards 0-4, 4-8, 8-12; its reduction over replicas waits for the first, the last forward for it. Rank 1
  // comes to the loss at 0, rank 0 behind its own reduction at 14.
  ranks[0].actions = {ir::forward(0, 0), ir::all_reduce(0), ir::forward(0, 1), ir::forward(0, 2), ir::reduce_loss(),
                      ir::forward(0, 3)};
  ranks[0].waits = {{1, ir::Lane::Compute, 1}, {5, ir::Lane::Collective, 1}};
  ranks[1].actions = {ir::reduce_loss(), ir::forward(1, 0)};
  ranks[1].waits = {{1, ir::Lane::Collective, 1}};
  const Simulation s = run(plan, Collectives());
  EXPECT_EQ(time_of(plan, s, 0, ActionKind::AllReduce), Span(4, 14));
  EXPECT_EQ(time_of(plan, s, 0, ActionKind::Forward, 1), Span(4, 8));
  EXPECT_EQ(time_of(plan, s, 0, ActionKind::Forward, 2), Span(8, 12));
  EXPECT_EQ(time_of(plan, s, 0, ActionKind::ReduceLoss), Span(14, 20));
  EXPECT_EQ(time_of(plan, s, 1, ActionKind::ReduceLoss), Span(14, 20));
  EXPECT_EQ(time_of(plan, s, 0, ActionKind::Forward, 3), Span(14, 18));
  EXPECT_EQ(time_of(plan, s, 1, ActionKind::Forward, 0), Span(20, 24));
  EXPECT_EQ(s.ranks[0].overlap, 4 + 4 + 4);
  EXPECT_EQ(s.ranks[1].overlap, 0);
  EXPECT_EQ(s.step_time, 24);
}

TEST(SimulateLanes, BlockedLanesAreNamed) {
  ir::Plan plan = test::make_plan(test::Placement::Loop, 2, 1, 1, test::one_f_one_b(2, 1));
  plan.level = ir::Level::Lane;
  auto& ranks = plan.programs[0].ranks;
  ranks[0].actions = {ir::recv_backward(0, 0, 1), ir::forward(0, 0)};
  ranks[0].waits = {{1, ir::Lane::P2p, 1}};
  ranks[1].actions = {ir::recv_forward(1, 0, 0)};
  ir::DiagnosticSink sink;
  EXPECT_FALSE(passes::simulate(plan, plan.programs[0], UnitCosts(), sink));
  EXPECT_NE(sink.text().find("program train blocks: rank 0, lane compute waits at Forward s0 m0; rank 0, lane p2p "
                             "waits at RecvBackward s0 m0 from 1; rank 1, lane p2p waits at RecvForward s1 m0 from 0"),
            std::string::npos)
      << sink.text();
}

// Every batch after the one before it on its lane and after what it waits for; the awaited batches counted anew.
void expect_order(const ir::RankProgram& rank, const std::vector<ActionTime>& times) {
  std::vector<double> ends[ir::kLanes];
  std::size_t wait = 0;
  for (std::size_t i = 0; i < rank.actions.size(); i += ir::batch_size(rank.actions, i)) {
    auto& lane = ends[static_cast<std::size_t>(rank.actions[i].lane)];
    EXPECT_LE(times[i].start, times[i].end);
    if (!lane.empty()) { EXPECT_GE(times[i].start, lane.back()); }
    for (; wait < rank.waits.size() && rank.waits[wait].action == i; ++wait) {
      EXPECT_GE(times[i].start, ends[static_cast<std::size_t>(rank.waits[wait].lane)].at(rank.waits[wait].count - 1));
    }
    lane.push_back(times[i].end);
  }
  EXPECT_EQ(wait, rank.waits.size());
}

// A start on lanes depends on fewer ends than a start in program order, and rounding keeps that.
TEST(SimulateLanes, NeverLongerThanInOrderAndWaitsAreKept) {
  int shorter = 0, overlapping = 0;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const int p = 2 + static_cast<int>(seed % 3), m = 2 + static_cast<int>(seed % 5);
    const auto placement = seed % 2 ? test::Placement::V : test::Placement::Loop;
    const ir::Plan plan = ir::testing::lane_plan(
        lowered(placement, p, 2, m, test::random_order(seed, placement, p, 2, m, seed % 3 == 0, seed % 7 == 0)));
    ir::DiagnosticSink sink;
    ASSERT_TRUE(ir::verify(plan, sink)) << sink.text();
    std::uniform_real_distribution<double> cost(0.1, 3);
    const UnitCosts costs(cost(random), cost(random), cost(random), cost(random));
    const Simulation lanes = run(plan, costs), serial = run(without_lanes(plan), costs);
    EXPECT_LE(lanes.step_time, serial.step_time) << seed;
    EXPECT_LE(lanes.makespan, serial.makespan) << seed;
    shorter += lanes.step_time < serial.step_time;
    for (std::size_t r = 0; r < lanes.ranks.size(); ++r) {
      expect_order(plan.programs[0].ranks[r], lanes.actions[r]);
      EXPECT_NEAR(lanes.ranks[r].busy, serial.ranks[r].busy, 1e-9 * serial.ranks[r].busy);
      EXPECT_EQ(lanes.ranks[r].peak_in_flight, serial.ranks[r].peak_in_flight);
      EXPECT_LE(lanes.ranks[r].overlap, lanes.ranks[r].busy + 1e-9);
      overlapping += lanes.ranks[r].overlap > 0;
    }
  }
  EXPECT_GT(shorter, 50);
  EXPECT_GT(overlapping, 100);
}

// What the passes make of configurations, priced: on lanes never longer than the same order without them, and under
// ZeRO-3 shorter by the gathers that run beside computation.
TEST(SimulateLanes, PlansOfThePassesGainByOverlap) {
  ir::DiagnosticSink sink;
  const auto profile =
      compiler::load_profile("cluster_16_nodes", compiler::default_profile_folders(), sink);
  ASSERT_TRUE(profile) << sink.text();
  for (const char* schedule : {"1f1b", "interleaved_1f1b", "zb_h1", "dualpipe_v", "dualpipe"}) {
    for (const char* zero : {"0", "1", "3"}) {
      SCOPED_TRACE(std::string(schedule) + " " + zero);
      const std::vector<std::string> set = {
          std::string("schedule.name=") + schedule, std::string("parallel.zero=") + zero, "overlap.lanes=true",
          "model.hidden=1024", "model.intermediate=4096", "batch.seq_len=1024", "parallel.dp=4", "batch.global=32"};
      const auto configuration =
          compiler::read_configuration(compiler::test::source(compiler::test::config_text(8, 4, 8)), set, sink);
      ASSERT_TRUE(configuration) << sink.text();
      auto plan = compiler::make_plan(*configuration, compiler::test::schedule(schedule), sink);
      const auto pipeline = passes::parse_pipeline(
          ir::SourceText("passes", passes::default_pipeline(configuration->settings())), sink);
      ASSERT_TRUE(plan && pipeline && passes::run_pipeline(*pipeline, *plan, sink)) << sink.text();
      ASSERT_EQ(plan->level, ir::Level::Lane);
      const auto costs = passes::PricedCosts::create(*plan, *profile, sink);
      const Simulation lanes = run(*plan, *costs), serial = run(without_lanes(*plan), *costs);
      EXPECT_LE(lanes.step_time, serial.step_time);
      EXPECT_LT(lanes.step_time, (zero[0] == '3' ? 0.95 : 1) * serial.step_time);
      double overlap = 0;  // a rank of 1F1B may have none: its messages decide when it computes
      for (std::size_t r = 0; r < lanes.ranks.size(); ++r) {
        expect_order(plan->programs[0].ranks[r], lanes.actions[r]);
        overlap += lanes.ranks[r].overlap;
      }
      EXPECT_GT(overlap, 0);
    }
  }
}

// The simulator and the runner of the tests, written apart, agree on what blocks: sends and receives one by one, where
// ranks that both send first block, and here and there exchanged or joined.
TEST(SimulateLanes, AgreesWithTheRunnerOnDeadlock) {
  int blocked = 0, free = 0;
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    const int p = 2 + static_cast<int>(seed % 3);
    ir::Plan plan =
        lowered(test::Placement::V, p, 2, 3, test::random_order(seed, test::Placement::V, p, 2, 3, false, false));
    for (ir::RankProgram& rank : plan.programs[0].ranks) {
      for (std::size_t i = 0; i + 1 < rank.actions.size(); ++i) {
        ir::Action& a = rank.actions[i];
        const bool split = random() % 4 == 0, join = random() % 4 == 0;
        if (!ir::is_p2p(a.kind) || !ir::is_p2p(rank.actions[i + 1].kind)) continue;
        if (split || join) a.flags = split ? 0 : static_cast<std::uint8_t>(ir::Action::kJoined);
        const bool apart = !a.joined() && !rank.actions[i + 1].joined() && (i == 0 || !rank.actions[i - 1].joined());
        if (apart && random() % 4 == 0) std::swap(a, rank.actions[i + 1]);
      }
    }
    plan = ir::testing::lane_plan(std::move(plan));
    ir::DiagnosticSink verifier, sink;
    ir::verify(plan, verifier);
    const bool other_faults = std::ranges::any_of(verifier.all(), [](const ir::Diagnostic& d) {
      return d.severity == ir::Severity::Error && d.code != "V23";  // messages that do not match in order
    });
    if (other_faults) continue;
    const bool runs = passes::simulate(plan, plan.programs[0], UnitCosts(), sink).has_value();
    EXPECT_EQ(runs, ir::testing::run_lanes(plan.programs[0], seed).empty()) << "seed " << seed << sink.text();
    ++(runs ? free : blocked);
  }
  EXPECT_GT(blocked, 50);
  EXPECT_GT(free, 50);
}

TEST(Overlap, ByHand) {
  using Times = std::vector<ActionTime>;
  const Times a = {{0, 2}, {5, 6}, {9, 9}}, b = {{1, 3}, {3, 4}, {5.5, 8}};
  const Times both = passes::merged({a, b});
  ASSERT_EQ(both.size(), 3u);  // 0-4, 5-8, 9-9
  EXPECT_EQ(both[0].end, 4);
  EXPECT_EQ(both[1].start, 5);
  EXPECT_EQ(both[1].end, 8);
  EXPECT_EQ(passes::overlap(both, Times{{1, 1.5}, {3.5, 7}}), 0.5 + 0.5 + 2);
  EXPECT_EQ(passes::overlap(both, Times{}), 0);
}

}  // namespace
}  // namespace fem
