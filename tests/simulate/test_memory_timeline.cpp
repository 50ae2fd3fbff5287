// Memory over time: against in-flight counts, and in bytes of a model small enough to add up by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/builder.hpp"
#include "passes/communication.hpp"
#include "passes/memory_timeline.hpp"
#include "small_model.hpp"

namespace fem {
namespace {

using namespace test;
using ir::UnitBlock;
using ir::UnitKind;
using passes::RankMemory;

struct Ran {
  ir::Plan plan;
  passes::Simulation simulation;
  const ir::Program& program() const { return plan.programs[0]; }
};

Ran run(Placement placement, int p, int v, int m, Order order, bool forward_only = false) {
  Ran result{make_plan(placement, p, v, m, std::move(order), forward_only), {}};
  ir::DiagnosticSink sink;
  EXPECT_TRUE(passes::lower_communication(result.plan.stages, result.plan.programs[0], sink)) << sink.text();
  result.plan.level = ir::Level::Communication;
  auto simulation = passes::simulate(result.plan, result.program(), passes::UnitCosts(2, 3, 1, 1), sink);
  EXPECT_TRUE(simulation.has_value()) << sink.text();
  result.simulation = std::move(*simulation);
  return result;
}

std::vector<RankMemory> memory_of(const Ran& run) {
  return passes::memory_timeline(run.plan, run.program(), run.simulation);
}

std::int64_t level_at(const RankMemory& memory, double time) {
  const auto after = std::ranges::upper_bound(memory.points, time, {}, &passes::MemoryPoint::time);
  return std::prev(after)->bytes;
}

// Blocks of a unit's microbatch, from the unit table.
struct Sizes {
  std::int64_t saved, work, activation;
};
Sizes sizes(const ir::Plan& plan, UnitKind kind) {
  const auto of = [&](UnitBlock b) {
    return ir::block_bytes(kind, b, ir::unit_dims(plan.settings), ir::unit_formats(plan.settings));
  };
  return {of(UnitBlock::saved_b) + of(UnitBlock::saved_w), of(UnitBlock::work), kActivation};
}

// Where communication holds ranks up, one action follows the other: the peak in time is the peak in program order.
TEST(MemoryTimeline, PeaksAreThoseOfTheProgram) {
  for (const Ran& r : {run(Placement::Loop, 4, 1, 8, gpipe(4, 8)), run(Placement::Loop, 4, 1, 8, one_f_one_b(4, 8)),
                       run(Placement::Loop, 4, 2, 8, interleaved(4, 8, 2, 4)),
                       run(Placement::Loop, 4, 1, 8, zb_h(4, 8, 2)), run(Placement::V, 2, 2, 4, zb_v_2_4())}) {
    const auto memory = memory_of(r);
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      const ir::MemoryPeak peak = ir::memory_peak(r.plan, r.program(), rank);
      EXPECT_EQ(memory[rank].peak, peak.bytes()) << "rank " << rank;
      EXPECT_EQ(static_cast<std::uint32_t>(memory[rank].peak_action), peak.action) << "rank " << rank;
    }
  }
}

// Two ranks, one microbatch, F takes 2, B 4, a message 1: half of an action's time is each unit's. Rank 0 holds the
// embedding and a block, rank 1 a block and the head. Rank 1 receives its input from 0 to 3.
TEST(MemoryTimeline, TwoRanksByHand) {
  const Ran r = run(Placement::Loop, 2, 1, 1, one_f_one_b(2, 1));
  const auto memory = memory_of(r);
  const Sizes embedding = sizes(r.plan, UnitKind::embedding), block = sizes(r.plan, UnitKind::block),
              head = sizes(r.plan, UnitKind::head);
  const std::int64_t a = kActivation, state0 = ir::total(memory[0].state), state1 = ir::total(memory[1].state);
  EXPECT_EQ(level_at(memory[0], 0.5), state0 + embedding.saved + a);
  EXPECT_EQ(level_at(memory[0], 1.5), state0 + embedding.saved + a + block.saved + a);
  EXPECT_EQ(level_at(memory[0], 2.5), state0 + embedding.saved + a + block.saved + a);  // being sent
  EXPECT_EQ(level_at(memory[0], 5), state0 + embedding.saved + a + block.saved + a);    // waits for its gradient
  EXPECT_EQ(level_at(memory[0], 11), state0 + embedding.saved + a + block.saved + block.work + 2 * a);
  EXPECT_EQ(level_at(memory[0], 13), state0 + embedding.saved + embedding.work + a);
  EXPECT_EQ(memory[0].points.back().bytes, state0);
  EXPECT_EQ(level_at(memory[1], 1), state1 + a);  // waits with its buffer
  EXPECT_EQ(level_at(memory[1], 3.5), state1 + a + block.saved + a);
  EXPECT_EQ(level_at(memory[1], 4.5), state1 + a + block.saved + a + head.saved);
  EXPECT_EQ(level_at(memory[1], 6), state1 + a + block.saved + a + head.saved + head.work + a);
  EXPECT_EQ(level_at(memory[1], 8), state1 + a + block.saved + a + block.work + a);
  EXPECT_EQ(level_at(memory[1], 9.5), state1 + a);  // the gradient is sent from 9 to 10
  EXPECT_EQ(memory[1].points.back().bytes, state1);
}

// 4 bytes of working copy, 4 of gradient, 8 of moments a parameter in fp32, each unit's buffer padded to 32 elements.
TEST(MemoryTimeline, StateByHand) {
  const Ran r = run(Placement::Loop, 2, 1, 1, one_f_one_b(2, 1));
  const auto padded = [](std::int64_t n) { return (n + 31) / 32 * 32; };
  const ir::KindBytes state = memory_of(r)[0].state;
  const std::int64_t parameters = padded(kEmbedding) + padded(16) * 2 + 4 * 16 * 16 + 3 * 16 * 32;
  EXPECT_EQ(state[static_cast<std::size_t>(ir::MemoryKind::Parameters)], 4 * parameters);
  EXPECT_EQ(state[static_cast<std::size_t>(ir::MemoryKind::Masters)], 0);
  EXPECT_EQ(state[static_cast<std::size_t>(ir::MemoryKind::Gradients)], 4 * parameters);
  EXPECT_EQ(state[static_cast<std::size_t>(ir::MemoryKind::Optimizer)], 8 * parameters);
}

TEST(MemoryTimeline, EvaluationKeepsNothing) {
  const Ran r = run(Placement::Loop, 2, 1, 4, forwards_only(one_f_one_b(2, 4)), true);
  const auto memory = memory_of(r);
  const std::int64_t block = sizes(r.plan, UnitKind::block).saved, head = sizes(r.plan, UnitKind::head).saved;
  EXPECT_EQ(memory[0].peak - ir::total(memory[0].state), block + 2 * kActivation);
  EXPECT_EQ(memory[1].peak - ir::total(memory[1].state), std::max(block + 2 * kActivation, head + kActivation));
  EXPECT_EQ(memory[1].points.back().bytes, ir::total(memory[1].state));
}

// Any valid order, split or whole, ends with what it began with; time only advances.
TEST(MemoryTimeline, NothingIsLeftOfAnyOrder) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const int p = 2 + static_cast<int>(seed % 3);
    const Placement placement = seed % 2 ? Placement::V : Placement::Loop;
    const Ran r = run(placement, p, 2, 4, random_order(seed, placement, p, 2, 4, seed % 3 == 0, false));
    for (const RankMemory& memory : memory_of(r)) {
      EXPECT_EQ(memory.points.front().time, 0);
      EXPECT_EQ(memory.points.back().bytes, ir::total(memory.state)) << "seed " << seed;
      EXPECT_TRUE(std::ranges::is_sorted(memory.points, {}, &passes::MemoryPoint::time)) << "seed " << seed;
      EXPECT_EQ(std::ranges::max(memory.points, {}, &passes::MemoryPoint::bytes).bytes, memory.peak);
      EXPECT_GT(memory.peak, ir::total(memory.state));
    }
  }
}

}  // namespace
}  // namespace fem
