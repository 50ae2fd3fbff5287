#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/beside_blocks.hpp"
#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/reduction_scratch.hpp"
#include "ir/verify.hpp"
#include "tests/ir/plans.hpp"

namespace fem::ir::testing {
namespace {

using ::testing::HasSubstr;

TEST(Bytes, AreReadWithTheirUnit) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("12B"), 12);
  EXPECT_EQ(parse_bytes("80GB"), 80'000'000'000);  // GB and GiB are different units
  EXPECT_EQ(parse_bytes("80GiB"), 85'899'345'920);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("0.5kB"), 500);
  for (const char* wrong : {"", "GiB", "-1", "1gib", "1 G", "1GiB ", "nan", "1e3", "9999999TiB", "1,5GiB"}) {
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
  }
}

TEST(Bytes, TheNearestFormIsNamed) {
  EXPECT_EQ(nearest_bytes("80gib"), "80GiB");
  EXPECT_EQ(nearest_bytes("80 gb"), "80GB");
  EXPECT_EQ(nearest_bytes("80G"), "80GiB");
  EXPECT_EQ(nearest_bytes("1,5 tebibytes"), "1.5TiB");
  EXPECT_EQ(nearest_bytes("80 gigabytes"), "80GB");
  EXPECT_EQ(nearest_bytes("7KB"), "7kB");
  for (const char* nothing : {"", "GiB", "-1GiB", "a lot", "1..5GiB"}) EXPECT_EQ(nearest_bytes(nothing), "") << nothing;
}

TEST(Bytes, AreWrittenInPowersOf1024) {
  EXPECT_EQ(bytes_text(640), "640 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(85'899'345'920), "80.0 GiB");
}

std::int64_t block(const Plan& plan, UnitKind kind, UnitBlock which) {
  return block_bytes(kind, which, unit_dims(plan.settings), unit_formats(plan.settings));
}

// One rank, one microbatch: everything that the forward keeps is there when the head turns around, with the head's own
// weight work and the gradient that it hands back. Counted here by hand from the unit table.
TEST(MemoryBlocks, OneMicrobatchPeaksWhereTheHeadTurnsAround) {
  const Plan plan = stage_plan({.pp = 1, .microbatches = 1});
  const auto of = [&](UnitKind kind, UnitBlock which) { return block(plan, kind, which); };
  const std::int64_t layers = plan.settings.model.layers;
  const auto saved = [&](UnitKind kind) { return of(kind, UnitBlock::saved_b) + of(kind, UnitBlock::saved_w); };
  const std::int64_t kept = saved(UnitKind::embedding) + of(UnitKind::embedding, UnitBlock::output) +
                            layers * (saved(UnitKind::block) + of(UnitKind::block, UnitBlock::output)) +
                            saved(UnitKind::head);
  const std::int64_t head = of(UnitKind::head, UnitBlock::work) + of(UnitKind::head, UnitBlock::grad_input);
  // Or the last block's backward, with the head's saved tensors and input gone and its gradient still there.
  const std::int64_t last_block = kept - saved(UnitKind::head) - of(UnitKind::block, UnitBlock::output) +
                                  of(UnitKind::head, UnitBlock::grad_input) + of(UnitKind::block, UnitBlock::work) +
                                  of(UnitKind::block, UnitBlock::grad_input);
  EXPECT_EQ(memory_peak(plan, plan.programs[0], 0).live, std::max(kept + head, last_block));
}

TEST(MemoryBlocks, EveryBlockIsOfItsRankAndDiesOnce) {
  for (const PlanShape& shape : all_shapes()) {
    const Plan plan = communication_plan(shape);
    for (const Program& program : plan.programs) {
      for (std::size_t r = 0; r < program.ranks.size(); ++r) {
        const RankBlocks all = memory_blocks(plan, program, r);
        std::uint32_t last = 0;
        for (const MemoryBlock& b : all.blocks) {
          ASSERT_LE(last, b.birth);
          ASSERT_LE(b.birth, b.death);
          ASSERT_LT(b.death, all.action.size());
          ASSERT_GT(b.bytes, 0);
          ASSERT_EQ(b.bytes % kBufferAlignment, 0);
          last = b.birth;
        }
        const MemoryPeak peak = memory_peak(plan, program, r);
        EXPECT_GE(peak.pool, peak.live) << name(shape);
        EXPECT_GT(peak.live, 0) << name(shape);
      }
    }
  }
}

// 1F1B holds min(m, p - r) microbatches on rank r (facts of the schedule): so do the saved tensors.
TEST(MemoryBlocks, OneForwardOneBackwardHoldsAsManyMicrobatchesAsItsWarmUp) {
  const Plan plan = communication_plan({.pp = 4, .microbatches = 8});
  for (std::size_t r = 0; r < 3; ++r) {  // the last rank's head turns around with other blocks
    std::int64_t most = 0, now = 0;
    const RankBlocks all = memory_blocks(plan, plan.programs[0], r);
    std::vector<std::int64_t> change(all.action.size() + 1);
    for (const MemoryBlock& b : all.blocks) {
      if (b.kind != MemoryKind::Saved) continue;
      change[b.birth] += b.bytes;
      change[b.death + 1] -= b.bytes;
    }
    for (const std::int64_t c : change) most = std::max(most, now += c);
    std::int64_t of_one = 0;
    for (const MemoryBlock& b : all.blocks) {
      if (b.kind == MemoryKind::Saved && b.microbatch == 0) of_one += b.bytes;
    }
    EXPECT_EQ(most, static_cast<std::int64_t>(4 - r) * of_one) << "rank " << r;
  }
}

// Three fp32 tables of seq_len x head_dim / 2; twice a piece of the embedding, in fp32, where its other copy is on
// another rank; a number for each stage.
TEST(BesideBlocks, ConstantsAreCountedByHand) {
  Plan plan = stage_plan({.pp = 2, .tied = true});
  plan.settings.batch.seq_len = 10;
  plan.settings.model.head_dim = 6;
  plan.settings.model.hidden = 8;
  plan.settings.model.vocab = 100;
  constexpr std::int64_t kTables = 3 * 4 * 10 * 3, kStage = 4;
  for (std::size_t rank : {0u, 1u}) EXPECT_EQ(constant_bytes(plan, rank), kTables + 2 * 4 * 100 * 8 + kStage);
  plan.settings.model.vocab = 1'000'000;
  EXPECT_EQ(constant_bytes(plan, 0), kTables + 2 * 4 * (1 << 20) + kStage);
  plan.settings.model.tied = false;
  EXPECT_EQ(constant_bytes(plan, 0), kTables + kStage);
  EXPECT_EQ(constant_bytes(stage_plan({.pp = 1, .tied = true}), 0),
            constant_bytes(stage_plan({.pp = 1}), 0)) << "both copies on one rank need no scratch";
}

TEST(BesideBlocks, HiddenIsTheMostOfTheRanksUnits) {
  Plan plan = stage_plan({.pp = 2});
  plan.settings.precision.compute = "bf16";
  const auto of = [&](UnitKind kind, Phase phase) {
    return hidden_bytes(kind, phase, unit_dims(plan.settings), unit_formats(plan.settings));
  };
  const auto most = [&](UnitKind kind) {
    return std::max({of(kind, Phase::forward), of(kind, Phase::backward_input), of(kind, Phase::backward_weight)});
  };
  EXPECT_EQ(hidden_bytes(plan, 0), most(UnitKind::block)) << "embedding and blocks: the embedding hides nothing";
  EXPECT_EQ(hidden_bytes(plan, 1), std::max(most(UnitKind::block), most(UnitKind::head)));
}

// An all-reduce divides its data: a block from each member, fp32. A reduce-scatter packs what it sends too. Both work
// through 2^18 elements of each member at a time.
TEST(ReductionScratch, IsThatOfTheLargestSum) {
  Plan plan = stage_plan({.pp = 1});
  auto& parallel = plan.settings.parallel;
  const auto scratch = [&](std::int64_t dp, std::int64_t zero, std::int64_t shard = 0) {
    parallel.dp = dp;
    parallel.zero = zero;
    parallel.shard = shard;
    return reduction_scratch_bytes(plan, 0);
  };
  const auto largest = [&](int pieces) {
    std::int64_t most = 0;
    for (const UnitKind kind : {UnitKind::embedding, UnitKind::block, UnitKind::head})
      most = std::max(most, flat_elements(kind, unit_dims(plan.settings), pieces));
    return most;
  };
  ASSERT_LT(largest(4), 1 << 18);
  EXPECT_EQ(scratch(1, 0), 0);
  EXPECT_EQ(scratch(1, 3), 0);
  EXPECT_EQ(scratch(4, 0), 4 * largest(4));
  for (const std::int64_t zero : {1, 2, 3}) EXPECT_EQ(scratch(4, zero), 2 * 4 * largest(4));
  EXPECT_EQ(scratch(4, 1, 2), 2 * 4 * largest(2)) << "inside a group of two";
  plan.settings.model.vocab = 1'000'000;
  EXPECT_EQ(scratch(4, 0), 4 * 4 * (1 << 18));
  EXPECT_EQ(scratch(4, 1), 2 * 4 * 4 * (1 << 18));
  EXPECT_EQ(scratch(8, 1, 2), 2 * 2 * 4 * (1 << 18));
  EXPECT_EQ(scratch(64, 1, 2), 4 * largest(2) / 2) << "between 32 groups, what a rank owns";
}

TEST(ReductionScratch, CountsReplicasOfTwoDirections) {
  const Plan plan = stage_plan({.pp = 2, .microbatches = 4, .placement = Placement::Bidirectional});
  std::int64_t most = 0;
  each_unit_of_rank(plan.stages, 0, [&](int unit) {
    most = std::max(most, flat_elements(unit_kind(plan.settings, unit), unit_dims(plan.settings)));
  });
  EXPECT_EQ(plan.settings.parallel.dp, 1);
  EXPECT_EQ(reduction_scratch_bytes(plan, 0), 4 * most);
}

TEST(MemoryLimit, IsKeptToTheByte) {
  Plan plan = communication_plan({.pp = 2, .microbatches = 4});
  std::int64_t most = 0;
  for (const Program& program : plan.programs) {
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      most = std::max(most, memory_peak(plan, program, r).bytes());
    }
  }
  DiagnosticSink sink;
  plan.settings.memory.limit = std::to_string(most);
  EXPECT_TRUE(verify(plan, sink)) << sink.text();
  plan.settings.memory.limit = std::to_string(most - 1);
  EXPECT_FALSE(verify(plan, sink));
  EXPECT_THAT(sink.text(), HasSubstr("1 B (1 bytes) more than memory.limit=" + std::to_string(most - 1)));
  EXPECT_TRUE(verify(plan, sink, {}, MemoryLimit::Ignored));
}

TEST(MemoryLimit, OfAnotherFormIsRefused) {
  Plan plan = communication_plan({.pp = 2, .microbatches = 4});
  plan.settings.memory.limit = "80 gigabytes";
  DiagnosticSink sink;
  EXPECT_FALSE(verify(plan, sink));
  EXPECT_THAT(sink.text(), HasSubstr("memory.limit = 80 gigabytes is not a number of bytes, as 80GiB or 512MB"));
}

}  // namespace
}  // namespace fem::ir::testing
