// Memory over time: against in-flight counts, and in bytes of a model small enough to add up by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/builder.hpp"
#include "passes/communication.hpp"
#include "passes/memory_timeline.hpp"
#include "small_model.hpp"

namespace fem {
namespace {

using namespace test;
using passes::BufferSizes;
using passes::RankMemory;
using passes::StageBytes;

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
  return passes::memory_timeline(run.plan, run.program(), run.simulation, BufferSizes(run.plan));
}

// Every stage keeps one byte from its forward to its whole backward, or to the weight gradient: the byte count is the
// count of microbatches in flight.
std::vector<RankMemory> counted(const Ran& run) {
  StageBytes one;
  one.saved = one.work = 1;
  return passes::memory_timeline(run.plan, run.program(), run.simulation,
                                 BufferSizes(run.plan, std::vector<StageBytes>(run.plan.stages.size(), one)));
}

std::int64_t level_at(const RankMemory& memory, double time) {
  const auto after = std::ranges::upper_bound(memory.points, time, {}, &passes::MemoryPoint::time);
  return std::prev(after)->bytes;
}

TEST(MemoryTimeline, UnitWeightsCountWhatIsInFlight) {
  const std::map<std::string, Ran> runs = {
      {"gpipe", run(Placement::Loop, 4, 1, 8, gpipe(4, 8))},
      {"1f1b", run(Placement::Loop, 4, 1, 8, one_f_one_b(4, 8))},
      {"interleaved", run(Placement::Loop, 4, 2, 8, interleaved(4, 8, 2, 4))},
      {"bfs", run(Placement::Loop, 4, 2, 8, looped_bfs(4, 8, 2))},
  };
  // Published peaks of p=4, m=8; see the simulator's own tests.
  const std::map<std::string, std::vector<std::int64_t>> peaks = {
      {"gpipe", {8, 8, 8, 8}}, {"1f1b", {4, 3, 2, 1}}, {"interleaved", {11, 9, 7, 5}}, {"bfs", {16, 16, 16, 16}}};
  for (const auto& [name, r] : runs) {
    const auto memory = counted(r);
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      EXPECT_EQ(memory[rank].peak, peaks.at(name)[rank]) << name << " rank " << rank;
      EXPECT_EQ(memory[rank].peak, r.simulation.ranks[rank].peak_in_flight) << name << " rank " << rank;
      EXPECT_EQ(memory[rank].points.back().bytes, 0) << name << " rank " << rank;
    }
  }
}

// With a split backward the one byte changes from saved to weight work within the input gradient: outside of those the
// level is the count, here recounted from the order itself.
TEST(MemoryTimeline, SplitBackwardHoldsUntilTheWeightGradient) {
  for (const Ran& r : {run(Placement::Loop, 4, 1, 8, zb_h(4, 8, 1)), run(Placement::Loop, 4, 1, 8, zb_h(4, 8, 2)),
                       run(Placement::V, 2, 2, 4, zb_v_2_4())}) {
    const auto memory = counted(r);
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      const auto& actions = r.program().ranks[rank].actions;
      int in_flight = 0, seen = 0;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        const passes::ActionTime& time = r.simulation.actions[rank][i];
        if (actions[i].kind == ir::ActionKind::Forward) {
          EXPECT_EQ(level_at(memory[rank], (time.start + time.end) / 2), ++in_flight);
          ++seen;
        }
        if (actions[i].kind == ir::ActionKind::BackwardWeight) {
          EXPECT_EQ(level_at(memory[rank], (time.start + time.end) / 2), in_flight--);
        }
      }
      EXPECT_EQ(seen, r.program().microbatches * static_cast<int>(r.plan.stages.size() / memory.size()));
      EXPECT_EQ(in_flight, 0);
    }
  }
}

TEST(MemoryTimeline, StateInBothPrecisions) {
  // fp32: parameters 4, gradients 4, two moments 8 bytes a parameter; the master copy is the working copy.
  EXPECT_EQ(passes::state_bytes({}, 100), (passes::StateBytes{400, 400, 800}));
  // bf16: working copy 2, gradients 4, fp32 master and moments 12.
  ir::Settings bf16;
  bf16.precision.compute = "bf16";
  EXPECT_EQ(passes::state_bytes(bf16, 100), (passes::StateBytes{200, 400, 1200}));
}

// One rank, one microbatch, one block: forward holds the state and the saved tensors of embedding, block and head; the
// whole backward frees them.
TEST(MemoryTimeline, OneRankByHand) {
  const Ran r = run(Placement::Loop, 1, 1, 1, one_f_one_b(1, 1));
  const RankMemory memory = memory_of(r)[0];
  const std::int64_t state = 16 * (kEmbedding + kBlock + kHead);
  EXPECT_EQ(memory.state.total(), state);
  EXPECT_EQ(memory.peak, state + kEmbeddingSaved + kBlockSaved + kHeadSaved);
  EXPECT_EQ(memory.peak_time, 0);
  EXPECT_EQ(r.program().ranks[0].actions[static_cast<std::size_t>(memory.peak_action)].kind, ir::ActionKind::Forward);
  EXPECT_EQ(memory.points.back().bytes, state);
}

// Two ranks, one microbatch, F takes 2, B 4, a message 1. Rank 0 holds the embedding and a block, rank 1 a block and
// the head. Rank 1 receives its input from 0 to 3, and keeps that very tensor as the block's first saved one.
TEST(MemoryTimeline, TwoRanksByHand) {
  const Ran r = run(Placement::Loop, 2, 1, 1, one_f_one_b(2, 1));
  const auto memory = memory_of(r);
  const std::int64_t state0 = 16 * (kEmbedding + kBlock), state1 = 16 * (kBlock + kHead);
  const std::int64_t saved0 = kEmbeddingSaved + kBlockSaved, saved1 = kBlockSaved + kHeadSaved;
  EXPECT_EQ(level_at(memory[0], 1), state0 + saved0 + kActivation);    // forward: saved, and the output
  EXPECT_EQ(level_at(memory[0], 2.5), state0 + saved0 + kActivation);  // being sent
  EXPECT_EQ(level_at(memory[0], 10), state0 + saved0 + kActivation);   // receives its gradient from 3 on
  EXPECT_EQ(memory[0].points.back().bytes, state0);
  EXPECT_EQ(level_at(memory[1], 1), state1 + kActivation);  // waits with its buffer
  EXPECT_EQ(level_at(memory[1], 4), state1 + saved1);       // the input is among the saved
  EXPECT_EQ(level_at(memory[1], 7), state1 + saved1 + kActivation);  // backward writes the input's gradient
  EXPECT_EQ(level_at(memory[1], 9.5), state1 + kActivation);         // which is sent from 9 to 10
  EXPECT_EQ(memory[1].peak, state1 + saved1 + kActivation);
  EXPECT_EQ(memory[1].peak_time, 5);
}

// Split: in B saved tensors and weight work are both there, and the gradient that came in is kept as weight work.
TEST(MemoryTimeline, SplitByHand) {
  const Ran r = run(Placement::Loop, 2, 1, 2, zb_h(2, 2, 1));
  const RankMemory memory = memory_of(r)[0];
  const auto& actions = r.program().ranks[0].actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const passes::ActionTime& time = r.simulation.actions[0][i];
    const double middle = (time.start + time.end) / 2;
    if (actions[i].kind == ir::ActionKind::BackwardInput && actions[i].microbatch == 1) {
      EXPECT_EQ(level_at(memory, middle), 16 * (kEmbedding + kBlock) + kEmbeddingSaved + kBlockSaved +
                                              kEmbeddingWork + kBlockWork);
    }
  }
  EXPECT_EQ(memory.points.back().bytes, 16 * (kEmbedding + kBlock));
}

TEST(MemoryTimeline, EvaluationKeepsNothing) {
  const Ran r = run(Placement::Loop, 2, 1, 4, forwards_only(one_f_one_b(2, 4)), true);
  const auto memory = memory_of(r);
  EXPECT_EQ(memory[0].peak - memory[0].state.total(), kActivation);
  EXPECT_EQ(memory[1].peak - memory[1].state.total(), kActivation);
  EXPECT_EQ(memory[1].points.back().bytes, memory[1].state.total());
}

// Any valid order, split or whole, ends with what it began with; time only advances.
TEST(MemoryTimeline, NothingIsLeftOfAnyOrder) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const int p = 2 + static_cast<int>(seed % 3);
    const Placement placement = seed % 2 ? Placement::V : Placement::Loop;
    const Ran r = run(placement, p, 2, 4, random_order(seed, placement, p, 2, 4, seed % 3 == 0, false));
    for (const RankMemory& memory : memory_of(r)) {
      EXPECT_EQ(memory.points.front().time, 0);
      EXPECT_EQ(memory.points.back().bytes, memory.state.total()) << "seed " << seed;
      EXPECT_TRUE(std::ranges::is_sorted(memory.points, {}, &passes::MemoryPoint::time)) << "seed " << seed;
      EXPECT_EQ(std::ranges::max(memory.points, {}, &passes::MemoryPoint::bytes).bytes, memory.peak);
      EXPECT_GT(memory.peak, memory.state.total());
    }
  }
}

// Gathered parameters come with Unshard and go with Reshard; slots go one by one.
TEST(MemoryTimeline, UnitsAndSlots) {
  ir::Plan plan = make_plan(Placement::Loop, 1, 1, 1, one_f_one_b(1, 1));
  ir::Action gather = ir::action(ir::ActionKind::Unshard, 0), release = ir::action(ir::ActionKind::Reshard, 0);
  gather.unit = release.unit = 1;
  gather.group = ir::Group::dp;
  ir::Action free = ir::action(ir::ActionKind::Free, 0, 0);
  free.unit = 1;
  free.slot = 9;  // gate, 8*32 floats
  plan.programs[0].ranks[0].actions = {gather, ir::forward(0, 0), free, release};
  ir::DiagnosticSink sink;
  const auto simulation = passes::simulate(plan, plan.programs[0], passes::UnitCosts(), sink);
  ASSERT_TRUE(simulation) << sink.text();
  const RankMemory memory = passes::memory_timeline(plan, plan.programs[0], *simulation, BufferSizes(plan))[0];
  const std::int64_t rest = 12 * (kEmbedding + kBlock + kHead), saved = kEmbeddingSaved + kBlockSaved + kHeadSaved;
  EXPECT_EQ(memory.state.parameters, 0);
  EXPECT_EQ(memory.state.total(), rest);
  EXPECT_EQ(memory.peak, rest + 4 * kBlock + saved);
  EXPECT_EQ(memory.points.back().bytes, rest + saved - 8 * 32 * 4);
}

}  // namespace
}  // namespace fem
