// Units called one by one with recomputing against whole stages that keep everything, and the memory of both.
#include "executor/stage_runner.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "executor/error.hpp"
#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::make_plan;
using test::small_settings;

constexpr int kMicrobatches = 3;

// One rank with the whole model, and microbatches of tokens.
struct Rank {
  explicit Rank(const char* compute)
      : settings([&] {
          auto s = small_settings();
          s.precision.compute = compute;
          s.batch.global = kMicrobatches;
          return s;
        }()),
        plan(make_plan(settings)),
        parameters(plan, 0),
        activations(plan, kMicrobatches),
        runner(plan, parameters, {}, activations),
        losses(kMicrobatches, 1, 1) {
    parameters.initialise(settings, 1);
    const std::int64_t sizes[] = {settings.batch.micro, settings.batch.seq_len};
    for (int m = 0; m < kMicrobatches; ++m) {
      for (auto* ids : {&batches[m].tokens, &batches[m].targets}) {
        *ids = at::empty(sizes, at::kLong);
        for (std::int64_t i = 0; i < ids->numel(); ++i)
          ids->mutable_data_ptr<std::int64_t>()[i] =
              (i * i + 7 * m + (ids == &batches[m].targets)) % settings.model.vocab;
      }
    }
  }

  int units() { return runner.units(0); }
  void forward(int m, Keep keep = Keep::everything) {
    for (int u = 0; u < units(); ++u) runner.forward(0, m, u, batches[m], keep, losses);
  }
  void backward(int m) {
    for (int u = units(); u-- > 0;) {
      runner.backward_input(0, m, u);
      runner.backward_weight(0, m, u);
    }
  }

  // All forwards, then all backwards, whole or in two parts.
  void step(bool split) {
    for (int m = 0; m < kMicrobatches; ++m) forward(m);
    for (int m = 0; m < kMicrobatches && !split; ++m) backward(m);
    for (int m = 0; m < kMicrobatches && split; ++m)
      for (int u = units(); u-- > 0;) runner.backward_input(0, m, u);
    for (int m = 0; m < kMicrobatches && split; ++m)
      for (int u = units(); u-- > 0;) runner.backward_weight(0, m, u);
  }

  // With what `keep` left out recomputed before it is needed.
  void step(Keep keep) {
    for (int m = 0; m < kMicrobatches; ++m) forward(m, keep);
    for (int m = 0; m < kMicrobatches; ++m)
      for (int u = units(); u-- > 0;) {
        if (keep == Keep::input) runner.recompute(0, m, u, batches[m], Recompute::everything);
        if (keep == Keep::expensive) runner.recompute(0, m, u, batches[m], Recompute::cheap);
        runner.backward_input(0, m, u);
        runner.backward_weight(0, m, u);
      }
  }

  std::vector<at::Tensor> grads() {
    std::vector<at::Tensor> all;
    for (const UnitParameters& unit : parameters.stages()[0].units) all.push_back(unit.grad.clone());
    return all;
  }

  ir::Settings settings;
  ir::Plan plan;
  Parameters parameters;
  Activations activations;
  StageRunner runner;
  LossReduction losses;
  Microbatch batches[kMicrobatches];
};

void expect_same(Rank& a, Rank& b) {
  const auto got = a.grads(), want = b.grads();
  for (std::size_t u = 0; u < want.size(); ++u) EXPECT_TRUE(test::same_bits(got[u], want[u])) << "unit " << u;
  for (int m = 0; m < kMicrobatches; ++m) {
    EXPECT_EQ(a.losses.loss(m).loss, b.losses.loss(m).loss);
    EXPECT_EQ(a.losses.loss(m).tokens, b.losses.loss(m).tokens);
  }
  EXPECT_EQ(a.activations.alive(), 0);
}

class StageRunnerIn : public testing::TestWithParam<const char*> {};

TEST_P(StageRunnerIn, UnitsWithRecomputingGiveTheStagesBits) {
  Rank whole(GetParam());
  whole.step(false);
  EXPECT_GT(whole.losses.loss(0).loss, 0);
  for (const Keep keep : {Keep::everything, Keep::input, Keep::expensive}) {
    Rank units(GetParam());
    units.step(keep);
    expect_same(units, whole);
  }
  Rank split(GetParam());
  split.step(true);
  expect_same(split, whole);
}

// Dropped after the forward, as a pass may decide for some units and microbatches alone.
TEST_P(StageRunnerIn, FreedTensorsAreRecomputed) {
  Rank whole(GetParam()), freed(GetParam());
  whole.step(false);
  for (int m = 0; m < kMicrobatches; ++m) freed.forward(m);
  for (int u = 0; u < freed.runner.units(0); ++u)
    for (const auto& [m, what] : {std::pair{1, Recompute::everything}, {2, Recompute::cheap}}) {
      freed.runner.free_saved(0, m, u, what);
      freed.runner.recompute(0, m, u, freed.batches[m], what);
    }
  for (int m = 0; m < kMicrobatches; ++m) freed.backward(m);
  expect_same(freed, whole);
}

// Bytes that three microbatches in flight keep, by the unit table: what recomputing is for.
TEST_P(StageRunnerIn, MemoryIsWhatLifetimesDemand) {
  std::int64_t kept[3];
  int i = 0;
  for (const Keep keep : {Keep::everything, Keep::expensive, Keep::input}) {
    Rank rank(GetParam());
    rank.step(keep);
    const auto first = rank.activations.pool().allocated();
    rank.step(keep);
    EXPECT_EQ(rank.activations.pool().allocated(), first) << "the second step allocated";
    kept[i++] = first;
  }
  EXPECT_LT(kept[1], kept[0]);
  EXPECT_LT(kept[2], kept[1]);

  Rank rank(GetParam());
  rank.step(false);
  const auto dims = ir::unit_dims(rank.settings);
  const auto formats = ir::unit_formats(rank.settings);
  const auto bytes = [&](ir::UnitKind kind, ir::UnitBlock block) {
    return ir::block_bytes(kind, block, dims, formats);
  };
  std::int64_t demanded = 0, workspace = 0, work = 0;
  for (std::int64_t u = 0; u < ir::unit_count(rank.settings); ++u) {
    const auto kind = ir::unit_kind(rank.settings, u);
    // Each output is the input of the next unit, which keeps it.
    for (const auto block : {ir::UnitBlock::output, ir::UnitBlock::saved_b, ir::UnitBlock::saved_w})
      demanded += kMicrobatches * bytes(kind, block);
    for (const auto phase : {ir::Phase::forward, ir::Phase::backward_input, ir::Phase::backward_weight})
      workspace = std::max(workspace, ir::workspace_bytes(kind, phase, dims, formats));
  }
  for (const auto kind : {ir::UnitKind::block, ir::UnitKind::head}) work += bytes(kind, ir::UnitBlock::work);
  // Whole backwards: the work of one unit of each kind, and one gradient; the others lie where inputs have died.
  const auto gradient = bytes(ir::UnitKind::block, ir::UnitBlock::grad_input);
  EXPECT_EQ(rank.activations.pool().allocated(), demanded + work + workspace + gradient);
}

TEST_P(StageRunnerIn, WhatWasNotWrittenIsNotRead) {
  Rank rank(GetParam());
  const int head = rank.runner.units(0) - 1;
  EXPECT_THROW(rank.runner.forward(0, 0, 1, rank.batches[0], Keep::everything, rank.losses), ExecutionError);
  EXPECT_THROW(rank.runner.backward_input(0, 0, head), ExecutionError);
  EXPECT_THROW(rank.runner.backward_weight(0, 0, 0), ExecutionError);
  rank.forward(1, Keep::nothing);
  EXPECT_THROW(rank.runner.recompute(0, 1, 1, rank.batches[1], Recompute::everything), ExecutionError);
  rank.forward(0);
  EXPECT_THROW(rank.runner.backward_input(0, 0, 1), ExecutionError);  // the head's goes first
  EXPECT_THROW(rank.runner.backward_weight(0, 0, head), ExecutionError);
  EXPECT_THROW(rank.runner.recompute(0, 0, 1, rank.batches[0], Recompute::everything), ExecutionError);
  rank.runner.free_saved(0, 0, head, Recompute::everything);
  EXPECT_THROW(rank.runner.backward_input(0, 0, head), ExecutionError);
  EXPECT_THROW(rank.runner.forward(1, 0, 0, rank.batches[0], Keep::everything, rank.losses), ExecutionError);
}

INSTANTIATE_TEST_SUITE_P(Formats, StageRunnerIn, testing::Values("fp32", "bf16", "fp16"));

TEST(BlockPool, ABlockIsFreeWhenItsLastShareGoes) {
  BlockPool pool;
  Block first = pool.take(128);
  const void* address = first.data();
  Block share = first;
  first.reset();
  const Block other = pool.take(128);
  EXPECT_NE(other.data(), address);
  share = Block();
  EXPECT_EQ(pool.take(128).data(), address);
  EXPECT_EQ(pool.allocated(), 256);
  EXPECT_FALSE(pool.take(0));
  const void* workspace = pool.workspace(64);
  EXPECT_EQ(pool.workspace(32), workspace);
  EXPECT_EQ(pool.allocated(), 320);
}

}  // namespace
}  // namespace fem::exec
