#include "passes/communication.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "ir/builder.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "passes/simulate.hpp"

namespace fem {
namespace {

using ir::Action;
using ir::ActionKind;
using test::Order;
using test::Placement;

ir::Plan lower(ir::Plan plan) {
  ir::DiagnosticSink sink;
  for (ir::Program& program : plan.programs)
    EXPECT_TRUE(passes::lower_communication(plan.stages, program, sink)) << sink.text();
  plan.level = ir::Level::Communication;
  return plan;
}

// One rank in the notation of the golden files: Forward(0) SendForwardRecvBackward(1,0) ...
std::string golden_text(const std::vector<Action>& actions) {
  std::string text, names, microbatches;
  for (const Action& a : actions) {
    if (a.microbatch < 0) continue;
    names += ir::name(a.kind);
    microbatches += (microbatches.empty() ? "" : ",") + std::to_string(a.microbatch);
    if (a.joined()) continue;
    text += (text.empty() ? "" : " ") + names + "(" + microbatches + ")";
    names.clear();
    microbatches.clear();
  }
  return text;
}

// "pp=2 m=4 rank=1: actions"
void compare_golden(const std::string& file, Order (*order)(int p, int m)) {
  std::ifstream in(std::string(FEM_TEST_DATA "/golden/") + file);
  std::map<std::pair<int, int>, ir::Plan> plans;
  int lines = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    int p = 0, m = 0, rank = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "pp=%d m=%d rank=%d:", &p, &m, &rank), 3) << line;
    auto found = plans.find({p, m});
    if (found == plans.end())
      found = plans.emplace(std::pair(p, m), lower(test::make_plan(Placement::Loop, p, 1, m, order(p, m)))).first;
    EXPECT_EQ(golden_text(found->second.programs[0].ranks[static_cast<std::size_t>(rank)].actions),
              line.substr(line.find(':') + 2))
        << file << ": " << line.substr(0, line.find(':'));
    ++lines;
  }
  EXPECT_EQ(lines, 90) << file;
}

TEST(Communication, EqualsTheGoldenGpipe) { compare_golden("seed_gpipe.txt", test::gpipe); }
TEST(Communication, EqualsTheGolden1f1b) { compare_golden("seed_1f1b.txt", test::one_f_one_b); }

// What must hold of every lowered plan: it verifies (no deadlock under rendezvous among the rest), runs through in the
// simulator, keeps the order of compute, and between any two ranks sends and receives have the same order.
void check_lowered(const ir::Plan& before, const std::string& what) {
  SCOPED_TRACE(what);
  ir::DiagnosticSink sink;
  ir::Plan plan = before;
  for (ir::Program& program : plan.programs)
    ASSERT_TRUE(passes::lower_communication(plan.stages, program, sink)) << sink.text();
  plan.level = ir::Level::Communication;
  ASSERT_TRUE(ir::verify(plan, sink)) << sink.text();
  const ir::Program& program = plan.programs[0];
  ASSERT_TRUE(passes::simulate(plan, program, passes::UnitCosts(), sink)) << sink.text();
  std::map<std::tuple<int, int, bool>, std::vector<std::tuple<bool, int, int>>>
      streams;  // from, to, is the sender's list
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    std::vector<Action> rest;
    for (const Action& a : program.ranks[static_cast<std::size_t>(r)].actions) {
      if (!ir::is_p2p(a.kind)) {
        rest.push_back(a);
        continue;
      }
      const bool send = ir::is_send(a.kind);
      const bool forward = a.kind == ActionKind::SendForward || a.kind == ActionKind::RecvForward;
      const ir::Stage& stage = plan.stages[static_cast<std::size_t>(a.stage)];
      const int sender_stage = send ? a.stage : forward ? stage.prev : stage.next;
      streams[{send ? r : a.peer, send ? a.peer : r, send}].push_back({forward, sender_stage, a.microbatch});
    }
    EXPECT_EQ(rest, before.programs[0].ranks[static_cast<std::size_t>(r)].actions) << "rank " << r;
  }
  for (const auto& [key, list] : streams) {
    const auto [from, to, send] = key;
    EXPECT_EQ(list, (streams[{from, to, !send}])) << "from " << from << " to " << to;
  }
}

std::string named(const char* schedule, int p, int m, int v = 1) {
  return std::string(schedule) + " p=" + std::to_string(p) + " m=" + std::to_string(m) + " v=" + std::to_string(v);
}

std::vector<int> grid(int p) { return {1, 2, p, 2 * p, 2 * p + 1, 3 * p, 24}; }

TEST(Communication, LowersOneStagePerRank) {
  for (int p : {1, 2, 3, 4, 5, 6, 7, 8, 16})
    for (int m : grid(p)) {
      check_lowered(test::make_plan(Placement::Loop, p, 1, m, test::gpipe(p, m)), named("gpipe", p, m));
      check_lowered(test::make_plan(Placement::Loop, p, 1, m, test::one_f_one_b(p, m)), named("1f1b", p, m));
      check_lowered(test::make_plan(Placement::Loop, p, 1, m, test::zb_h(p, m, 1)), named("zb_h1", p, m));
      check_lowered(test::make_plan(Placement::Loop, p, 1, m, test::zb_h(p, m, 2)), named("zb_h2", p, m));
      check_lowered(test::make_plan(Placement::Loop, p, 1, m, test::forwards_only(test::gpipe(p, m)), true),
                    named("eval", p, m));
    }
}

TEST(Communication, LowersSeveralChunks) {
  for (int p : {1, 2, 3, 4, 5, 8})
    for (int v : {2, 3})
      for (int m : grid(p)) {
        check_lowered(test::make_plan(Placement::Loop, p, v, m, test::looped_bfs(p, m, v)),
                      named("looped_bfs", p, m, v));
        check_lowered(test::make_plan(Placement::Loop, p, v, m, test::forwards_only(test::looped_bfs(p, m, v)), true),
                      named("eval", p, m, v));
        for (int n : {p, m}) {
          if (m < n || n < p || (m % n != 0 && m % n < p)) continue;
          check_lowered(test::make_plan(Placement::Loop, p, v, m, test::interleaved(p, m, v, n)),
                        named("interleaved", p, m, v));
          check_lowered(test::make_plan(Placement::Loop, p, v, m, test::interleaved(p, m, v, n, true)),
                        named("interleaved_zb", p, m, v));
        }
      }
  check_lowered(test::make_plan(Placement::V, 2, 2, 4, test::zb_v_2_4()), "zb_v");
}

TEST(Communication, LowersOverlappedPairs) {
  for (int p : {2, 3, 4, 6, 8})
    for (int m : {2 * p, 2 * p + 2, 3 * p})
      check_lowered(test::make_plan(Placement::V, p, 2, m, test::dualpipe_v(p, m)), named("dualpipe_v", p, m, 2));
}

TEST(Communication, LowersTwoDirections) {
  for (int p : {2, 4, 6, 8})
    for (int m : {2 * p, 2 * p + 2, 4 * p})
      check_lowered(test::make_plan(Placement::Bidirectional, p, 1, m, test::dualpipe(p, m)), named("dualpipe", p, m));
}

// Whatever order a schedule finds, as long as it can run at all.
TEST(Communication, LowersRandomOrders) {
  for (std::uint32_t seed = 0; seed < 600; ++seed) {
    const int p = 2 + static_cast<int>(seed % 5), m = 2 * (1 + static_cast<int>(seed / 7 % 5));
    const Placement placement = seed % 3 == 0   ? Placement::Loop
                                : seed % 3 == 1 ? Placement::V
                                                : Placement::Bidirectional;
    const int chunks = placement == Placement::Bidirectional ? 1
                       : placement == Placement::V           ? 2
                                                             : 1 + static_cast<int>(seed / 3 % 3);
    const bool split = seed / 2 % 2, pairs = !split && seed / 4 % 2;
    check_lowered(
        test::make_plan(placement, p, chunks, m, test::random_order(seed, placement, p, chunks, m, split, pairs)),
        "seed " + std::to_string(seed));
  }
}

TEST(Communication, OnlyBetweenRanks) {
  // V placement on two ranks: stages 1 and 2 are both on rank 1, so nothing is sent between them.
  const ir::Plan plan = lower(test::make_plan(
      Placement::V, 2, 2, 1, {test::read_order("0F0 3F0 3B0 0B0"), test::read_order("1F0 2F0 2B0 1B0")}));
  EXPECT_EQ(
      golden_text(plan.programs[0].ranks[0].actions),
      "Forward(0) SendForward(0) RecvForward(0) Forward(0) Backward(0) SendBackward(0) RecvBackward(0) Backward(0)");
  EXPECT_EQ(
      golden_text(plan.programs[0].ranks[1].actions),
      "RecvForward(0) Forward(0) Forward(0) SendForward(0) RecvBackward(0) Backward(0) Backward(0) SendBackward(0)");
}

// The consumer wants microbatch 1 first, the producer sends 0 first: 0 is received first and waits in its buffer.
TEST(Communication, ReceivesInTheSendersOrder) {
  const ir::Plan plan = lower(
      test::make_plan(Placement::Loop, 2, 1, 2, {test::read_order("0F0 0F1"), test::read_order("1F1 1F0")}, true));
  EXPECT_EQ(golden_text(plan.programs[0].ranks[0].actions), "Forward(0) SendForward(0) Forward(1) SendForward(1)");
  EXPECT_EQ(golden_text(plan.programs[0].ranks[1].actions), "RecvForward(0) RecvForward(1) Forward(1) Forward(0)");
}

TEST(Communication, ContradictionIsAnErrorThatNamesTheCycle) {
  // Rank 0 wants the gradient of microbatch 1 before it makes the activation that rank 1 needs for it.
  ir::Plan plan = test::make_plan(Placement::Loop, 2, 1, 2,
                                  {test::read_order("0F0 0B1 0F1 0B0"), test::read_order("1F0 1F1 1B1 1B0")});
  const ir::Plan before = plan;
  ir::DiagnosticSink sink;
  EXPECT_FALSE(passes::lower_communication(plan.stages, plan.programs[0], sink));
  EXPECT_NE(sink.text().find("program train: the order of forwards and backwards contradicts itself across ranks: "
                             "rank 0 waits at RecvBackward s0 m1 from 1, rank 1 waits at RecvForward s1 m1 from 0"),
            std::string::npos)
      << sink.text();
  EXPECT_EQ(plan, before);
}

TEST(Communication, MissingOtherSideIsAnError) {
  ir::Plan plan = test::make_plan(Placement::Loop, 2, 1, 1, {test::read_order("0F0 0B0"), {}});
  ir::DiagnosticSink sink;
  EXPECT_FALSE(passes::lower_communication(plan.stages, plan.programs[0], sink));
  EXPECT_NE(sink.text().find("rank 0: SendForward s0 m0 to 1 has no other side on rank 1"), std::string::npos)
      << sink.text();
}

}  // namespace
}  // namespace fem
