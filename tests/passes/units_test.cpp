// Stages to units, ZeRO written out, recompute: what stands where, and that it verifies for any order.
#include <algorithm>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/memory_blocks.hpp"
#include "ir/text.hpp"
#include "ir/unit_sizes.hpp"
#include "ir/units.hpp"
#include "orders.hpp"
#include "passes/manager.hpp"
#include "run_passes.hpp"

namespace fem {
namespace {

using ir::Action;
using ir::ActionKind;
using test::Placement;
using test::program_text;
using test::run_passes;
using ::testing::HasSubstr;

ir::Plan sized(ir::Plan plan, std::int64_t zero, const std::string& reduce) {
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global *= 2;
  plan.settings.parallel.zero = zero;
  plan.settings.parallel.reduce = reduce;
  return plan;
}

// All that divides and gathers otherwise, at once.
ir::Plan divided(ir::Plan plan, std::int64_t zero, const std::string& reduce) {
  plan = sized(std::move(plan), zero, reduce);
  plan.settings.parallel.dp *= 2;
  plan.settings.batch.global *= 2;
  plan.settings.parallel.shard = 2;
  plan.settings.parallel.gather = "forward";
  plan.settings.parallel.bucket = "8KiB";
  plan.settings.overlap.lanes = true;
  plan.settings.parallel.resident = std::to_string(2 * ir::unit_sizes(plan.settings)[0].params);
  return plan;
}

std::int64_t count(const ir::Plan& plan, ActionKind kind) {
  return std::ranges::count(plan.programs[0].ranks[0].actions, kind, &Action::kind);
}

// One rank, units embedding, one block, head; one microbatch.
ir::Plan one_rank() {
  return test::make_plan(Placement::Loop, 1, 1, 1, test::gpipe(1, 1));
}

TEST(Units, Zero3GathersEachUnitAroundItsUse) {
  const std::string program = program_text(run_passes("communication,units,recompute", sized(one_rank(), 3, "step")));
  const int units = static_cast<int>(ir::unit_count(one_rank().settings));
  const std::string block = "Unshard s0 u1 over dp_cp\nForward s0 m0 u1\nFree s0 m0 u1\nReshard s0 u1\n";
  EXPECT_THAT(program, HasSubstr(block));
  EXPECT_THAT(program,
              HasSubstr("Unshard s0 u1 over dp_cp\nRecompute s0 m0 u1\nBackward s0 m0 u1\nReshard s0 u1\n"));
  // The head's forward and backward follow each other: one gather serves both.
  const std::string head = std::to_string(units - 1);
  EXPECT_THAT(program, HasSubstr("Unshard s0 u" + head + " over dp_cp\nForward s0 m0 u" + head +
                                 "\nBackward s0 m0 u" + head + "\nReshard s0 u" + head + "\n"));
  EXPECT_THAT(program, HasSubstr("ReduceScatter s0 over dp_cp\nGradNorm over world\nClipGrad s0\n"
                                 "OptimizerStep s0 if finite\n"));
}

TEST(Units, Zero1And2GatherAfterTheUpdate) {
  for (const int zero : {1, 2}) {
    const std::string program = program_text(run_passes("communication,units", sized(one_rank(), zero, "step")));
    EXPECT_THAT(program, ::testing::EndsWith("OptimizerStep s0 if finite\nUnshard s0 over dp_cp\n"));
    EXPECT_EQ(program.find("Reshard"), std::string::npos);
  }
}

TEST(Units, GradientsAreReducedAfterEachBackwardButTiedOnes) {
  ir::Plan plan = sized(one_rank(), 2, "microbatch");
  EXPECT_THAT(program_text(run_passes("communication,units", plan)),
              HasSubstr("ZeroGrad s0 u1\nBackward s0 m0 u1\nReduceScatter s0 u1 over dp_cp\n"));
  plan.settings.model.tied = true;
  for (std::size_t i = 0; i < plan.programs[0].ranks[0].actions.size(); ++i) {
    std::vector<Action>& actions = plan.programs[0].ranks[0].actions;
    if (actions[i].kind != ActionKind::AllReduce) continue;
    Action tied = actions[i];
    tied.kind = ActionKind::ReduceTiedGrad;
    tied.group = ir::Group::tied;
    actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(i), tied);
    break;
  }
  const std::string program = program_text(run_passes("communication,units", plan));
  const std::string head = std::to_string(ir::unit_count(plan.settings) - 1);
  EXPECT_THAT(program, ::testing::StartsWith("ZeroGrad s0 u0\nZeroGrad s0 u" + head + "\n"));
  EXPECT_THAT(program, HasSubstr("ReduceTiedGrad s0 over tied\nReduceScatter s0 u0 over dp_cp\nReduceScatter s0 u" +
                                 head + " over dp_cp\n"));
}

// Each program gathers what it uses, a unit at a time before the unit's first use; nothing after the update.
TEST(Units, GatherForwardStandsBeforeTheFirstUse) {
  for (const int zero : {1, 2}) {
    ir::Plan plan = sized(one_rank(), zero, "step");
    plan.settings.parallel.gather = "forward";
    const std::string program = program_text(run_passes("communication,units,recompute", plan));
    EXPECT_THAT(program, HasSubstr("Unshard s0 u0 over dp_cp\nForward s0 m0 u0\n"));
    EXPECT_THAT(program, HasSubstr("Unshard s0 u1 over dp_cp\nForward s0 m0 u1\n"));
    EXPECT_THAT(program, HasSubstr("\nRecompute s0 m0 u1\nBackward s0 m0 u1\n"));
    EXPECT_THAT(program, ::testing::EndsWith("OptimizerStep s0 if finite\n"));
    EXPECT_EQ(program.find("Reshard"), std::string::npos);
    EXPECT_EQ(count(run_passes("communication,units", plan), ActionKind::Unshard), ir::unit_count(plan.settings));
  }
  // Of no use where nothing, or everything, is divided: the programs stay the same.
  for (const int zero : {0, 3}) {
    ir::Plan plan = sized(one_rank(), zero, "step");
    const std::string before = program_text(run_passes("communication,units", plan));
    plan.settings.parallel.gather = "forward";
    EXPECT_EQ(program_text(run_passes("communication,units", plan)), before);
  }
}

std::int64_t bytes_of(const ir::Plan& plan, ir::UnitKind kind) {
  return ir::unit_sizes(plan.settings)[static_cast<std::size_t>(kind)].params;
}

// One rank, embedding, 3 blocks, head; 4 microbatches in GPipe's order: each block is gathered 8 times, the embedding
// likewise, the head 7 times, since its last forward and first backward follow each other.
ir::Plan four_microbatches(const std::string& resident) {
  ir::Plan plan = sized(test::make_plan(Placement::Loop, 1, 1, 4, test::gpipe(1, 4)), 3, "step");
  plan.settings.model.layers = 3;
  plan.stages[0].units = 5;
  plan.settings.overlap.lanes = true;
  plan.settings.parallel.resident = resident;
  return plan;
}

TEST(Residents, AreGatheredOnceWhileTheBudgetLasts) {
  const ir::Plan none = run_passes("communication,units", four_microbatches(""));
  const std::int64_t units = ir::unit_count(none.settings);
  const std::int64_t gathers = 8 * units - 1;
  EXPECT_EQ(count(none, ActionKind::Unshard), gathers);
  // All fit.
  const ir::Plan all = run_passes("communication,units,recompute", four_microbatches("1GiB"));
  EXPECT_EQ(count(all, ActionKind::Unshard), units);
  EXPECT_EQ(count(all, ActionKind::Reshard), units);
  const std::string program = program_text(all);
  EXPECT_THAT(program, ::testing::StartsWith("ZeroGrad s0\nUnshard s0 u0 over dp_cp\nForward s0 m0 u0\n"));
  EXPECT_THAT(program, HasSubstr("Backward s0 m0 u0\nReshard s0 u0\nReduceLoss over world\n"));
  // Less than the smallest unit: none does.
  EXPECT_EQ(run_passes("communication,units", four_microbatches("1")).programs, none.programs);
}

// What decides about memory before there are lanes (recompute that fits) counts residents: at GPipe's peak, between
// forwards and backwards, all units are there.
TEST(Residents, CountInTheForecastBeforeLanes) {
  const auto gathered = [](const std::string& resident, const std::string& passes) {
    const ir::Plan plan = run_passes("communication,units" + passes, four_microbatches(resident));
    const ir::MemoryPeak peak = ir::memory_peak(plan, plan.programs[0], 0);
    const auto kind = static_cast<std::size_t>(ir::MemoryKind::Parameters);
    return peak.persistent[kind] + peak.blocks[kind];
  };
  const ir::Plan plan = four_microbatches("");
  const std::int64_t block = bytes_of(plan, ir::UnitKind::block);
  const std::int64_t all = bytes_of(plan, ir::UnitKind::embedding) + 3 * block + bytes_of(plan, ir::UnitKind::head);
  EXPECT_EQ(gathered("", ""), block);  // the buffer that units share
  EXPECT_EQ(gathered("1GiB", ""), all);
  EXPECT_EQ(gathered("1GiB", ",lanes,arena"), all);
}

// Of the units that are gathered most often the smallest come first; the larger one does not fit any more and is passed
// over, the one after it fits.
TEST(Residents, PassOverWhatDoesNotFit) {
  const ir::Plan plan = four_microbatches("");
  const std::int64_t block = bytes_of(plan, ir::UnitKind::block), embedding = bytes_of(plan, ir::UnitKind::embedding),
                     head = bytes_of(plan, ir::UnitKind::head);
  ASSERT_LT(embedding, block);
  ASSERT_LT(head, block);
  const auto kept = [&](std::int64_t budget) {
    const ir::Plan out = run_passes("communication,units", four_microbatches(std::to_string(budget)));
    std::map<int, int> gathers;
    for (const Action& a : out.programs[0].ranks[0].actions) gathers[a.unit] += a.kind == ActionKind::Unshard;
    std::vector<int> units;
    for (const auto& [unit, n] : gathers) {
      if (unit >= 0 && n == 1) units.push_back(unit);
    }
    return units;
  };
  using ::testing::ElementsAre;
  const int last = static_cast<int>(ir::unit_count(plan.settings)) - 1;
  EXPECT_THAT(kept(embedding), ElementsAre(0));
  EXPECT_THAT(kept(embedding + block), ElementsAre(0, 1));
  // No room for a second block, but for the head, which is gathered less often.
  EXPECT_THAT(kept(embedding + block + head), ElementsAre(0, 1, last));
  EXPECT_THAT(kept(embedding + block + head - 1), ElementsAre(0, 1));
}

TEST(Units, ShardGroupsReduceInsideAndThenBetween) {
  ir::Plan plan = sized(one_rank(), 3, "step");
  plan.settings.parallel.dp = 4;
  plan.settings.batch.global = 4;
  plan.settings.parallel.shard = 2;
  const std::string program = program_text(run_passes("communication,units", plan));
  EXPECT_THAT(program, HasSubstr("Unshard s0 u1 over shard\nForward s0 m0 u1\nReshard s0 u1\n"));
  EXPECT_THAT(program, HasSubstr("ReduceLoss over world\nReduceScatter s0 over shard\n"
                                 "AllReduceShard s0 over replicate\nGradNorm over world\n"));
  // Sums of microbatches stay in the group until the step's end.
  plan.settings.parallel.reduce = "microbatch";
  const ir::Plan often = run_passes("communication,units", plan);
  EXPECT_THAT(program_text(often), HasSubstr("ZeroGrad s0 u1\nBackward s0 m0 u1\nReduceScatter s0 u1 over shard\n"));
  EXPECT_THAT(program_text(often),
              HasSubstr("ReduceLoss over world\nAllReduceShard s0 over replicate\nGradNorm over world\n"));
  // One group: the program is that of ZeRO without.
  plan.settings.parallel.shard = 4;
  const std::string one_group = program_text(run_passes("communication,units", plan));
  plan.settings.parallel.shard = 0;
  EXPECT_EQ(one_group, program_text(run_passes("communication,units", plan)));
}

// What a rank owns is a half instead of a quarter.
TEST(Units, MemoryFollowsTheShardGroups) {
  const auto persistent = [](std::int64_t dp, std::int64_t shard) {
    ir::Plan plan = sized(one_rank(), 3, "step");
    plan.settings.parallel.dp = dp;
    plan.settings.batch.global = dp;
    plan.settings.parallel.shard = shard;
    return ir::persistent_bytes(run_passes("communication,units", plan), 0);
  };
  EXPECT_EQ(persistent(4, 2), persistent(2, 0));
  EXPECT_LT(persistent(4, 0)[static_cast<std::size_t>(ir::MemoryKind::Optimizer)],
            persistent(4, 2)[static_cast<std::size_t>(ir::MemoryKind::Optimizer)]);
}

TEST(Units, BucketsAreReducedAfterTheLastBackwardOfTheirUnits) {
  ir::Plan plan = sized(test::make_plan(Placement::Loop, 1, 1, 2, test::one_f_one_b(1, 2)), 0, "bucket");
  const std::string head = std::to_string(ir::unit_count(plan.settings) - 1);
  plan.settings.parallel.bucket = "";  // each unit for itself
  std::string program = program_text(run_passes("communication,units", plan));
  EXPECT_THAT(program, HasSubstr("Backward s0 m0 u1\nBackward s0 m0 u0\n"));
  EXPECT_THAT(program, HasSubstr("Backward s0 m1 u" + head + "\nAllReduce s0 u" + head + " over dp_cp\n"));
  EXPECT_THAT(program, HasSubstr("Backward s0 m1 u0\nAllReduce s0 u0 over dp_cp\nReduceLoss over world\nGradNorm"));
  // A block and the unit before it, then the rest.
  const std::int64_t block = 4 * ir::flat_elements(ir::UnitKind::block, ir::unit_dims(plan.settings), 2);
  plan.settings.parallel.bucket = std::to_string(block + 1);
  program = program_text(run_passes("communication,units", plan));
  const std::string above = std::to_string(ir::unit_count(plan.settings) - 2);
  EXPECT_THAT(program, HasSubstr("Backward s0 m1 u" + head + "\nBackward s0 m1 u" + above + "\nAllReduce s0 u" + head +
                                 " over dp_cp\nAllReduce s0 u" + above + " over dp_cp\n"));
  // Larger than the stage: at the end of the schedule.
  plan.settings.parallel.bucket = "1GiB";
  program = program_text(run_passes("communication,units", plan));
  EXPECT_THAT(program, HasSubstr("Backward s0 m1 u0\nAllReduce s0 u" + head + " over dp_cp\n"));
  // Groups of replicas: the sum over the others follows at once.
  plan.settings.parallel = {.dp = 4, .zero = 2, .shard = 2, .reduce = "bucket", .bucket = ""};
  plan.settings.batch.global *= 2;
  EXPECT_THAT(program_text(run_passes("communication,units", plan)),
              HasSubstr("Backward s0 m1 u1\nReduceScatter s0 u1 over shard\nAllReduceShard s0 u1 over replicate\n"));
}

// The manager verifies after each pass, so that a run through is the proof.
TEST(Units, AnyOrderVerifiesInEveryCombination) {
  std::uint32_t seed = 0;
  for (const Placement placement : {Placement::Loop, Placement::V}) {
    for (const int p : {1, 2, 3}) {
      const int chunks = placement == Placement::V ? 2 : 1 + p % 2;
      for (const bool split : {false, true}) {
        const ir::Plan order = test::make_plan(placement, p, chunks, 4,
                                               test::random_order(++seed, placement, p, chunks, 4, split, true));
        for (const int zero : {0, 1, 2, 3}) {
          for (const char* reduce : {"step", "microbatch", "bucket"}) {
            for (const char* recompute : {"", ",recompute", ",recompute{mode=selective,every=2}"}) {
              SCOPED_TRACE(std::string(reduce) + recompute + " zero=" + std::to_string(zero));
              const std::string passes = std::string("communication,units") + recompute;
              EXPECT_EQ(run_passes(passes, sized(order, zero, reduce)).level, ir::Level::Unit);
              EXPECT_EQ(run_passes(passes, divided(order, zero, reduce)).level, ir::Level::Unit);
            }
          }
        }
      }
    }
  }
}

// B and W of a split backward share one recompute: a second one would cost a forward and hold its tensors twice.
TEST(Recompute, StandsOnceForEachForwardAndBeforeTheInputGradient) {
  const ir::Plan plan = run_passes("communication,units,recompute",
                            sized(test::make_plan(Placement::Loop, 4, 1, 8, test::zb_h(4, 8, 2)), 0, "step"));
  for (const ir::RankProgram& rank : plan.programs[0].ranks) {
    std::map<std::pair<int, int>, int> forwards, recomputes;
    for (std::size_t i = 0; i < rank.actions.size(); ++i) {
      const Action& a = rank.actions[i];
      const std::pair key(int{a.unit}, int{a.microbatch});
      if (a.unit < 0 || ir::unit_kind(plan.settings, a.unit) != ir::UnitKind::block) continue;
      if (a.kind == ActionKind::Forward) ++forwards[key];
      if (a.kind != ActionKind::Recompute) continue;
      ++recomputes[key];
      EXPECT_EQ(rank.actions[i + 1].kind, ActionKind::BackwardInput);
      EXPECT_EQ(rank.actions[i + 1].unit, a.unit);
    }
    EXPECT_EQ(forwards, recomputes);
  }
}

// ZeRO-3 with a pipeline held more than ZeRO-2 elsewhere (facts on memory). Here each stage of ZeRO holds no more than
// the one before, with and without recompute, on every rank. (A rank with a single block would have nothing to gain:
// one whole unit is there in any case.)
TEST(Units, MemoryFallsFromZero0To3) {
  for (const char* recompute : {"", ",recompute"}) {
    const ir::Plan order = test::make_plan(Placement::Loop, 2, 8, 4, test::interleaved(2, 4, 8, 2));
    std::vector<std::int64_t> before(2, INT64_MAX);
    for (const int zero : {0, 1, 2, 3}) {
      ir::Plan divided = sized(order, zero, zero < 2 ? "step" : "microbatch");
      divided.settings.parallel.dp *= 2;
      divided.settings.batch.global *= 2;
      const ir::Plan plan = run_passes(std::string("communication,units") + recompute, divided);
      for (std::size_t r = 0; r < 2; ++r) {
        const std::int64_t peak = ir::memory_peak(plan, plan.programs[0], r).bytes();
        EXPECT_LE(peak, before[r]) << "zero " << zero << recompute << " rank " << r;
        before[r] = peak;
      }
    }
  }
}

// The option's bytes are a limit as memory.limit is; what is chosen fits, and one byte less would take more.
TEST(Recompute, FitsIntoTheBytesOfItsOption) {
  ir::Plan order = test::make_plan(Placement::Loop, 2, 1, 4, test::one_f_one_b(2, 4));
  const auto most = [](const ir::Plan& plan) {
    return std::max(ir::memory_peak(plan, plan.programs[0], 0).bytes(),
                    ir::memory_peak(plan, plan.programs[0], 1).bytes());
  };
  const std::int64_t none = most(run_passes("communication,units", order)),
                     full = most(run_passes("communication,units,recompute", order));
  ASSERT_LT(full, none);
  for (const std::int64_t limit : {none, (none + full) / 2, full}) {
    const ir::Plan fitted =
        run_passes("communication,units,recompute{mode=fit,bytes=" + std::to_string(limit) + "}", order);
    EXPECT_LE(most(fitted), limit);
    order.settings.memory.limit = std::to_string(limit);
    EXPECT_EQ(run_passes("communication,units,recompute{mode=fit}", order).programs, fitted.programs);
    order.settings.memory.limit = "";
  }
  const auto refused = [&](const std::string& options) {
    ir::DiagnosticSink sink;
    const auto pipeline =
        passes::parse_pipeline(ir::SourceText("pipeline", "communication,units,recompute{" + options + "}"), sink);
    ir::Plan plan = order;
    EXPECT_FALSE(passes::run_pipeline(*pipeline, plan, sink));
    return sink.text();
  };
  EXPECT_THAT(refused("mode=fit"), HasSubstr("needs a memory.limit, or the option bytes"));
  EXPECT_THAT(refused("mode=fit,bytes=many"), HasSubstr("'many' is not a number of bytes"));
  EXPECT_THAT(refused("mode=fit,bytes=1KiB"), HasSubstr("more than the limit of 1KiB"));
}

TEST(Recompute, RefusesBlocksThatTheModelLacks) {
  ir::DiagnosticSink sink;
  const ir::SourceText wrong("pipeline", "communication,units,recompute{first=99}");
  const auto pipeline = passes::parse_pipeline(wrong, sink);
  ir::Plan stage = sized(one_rank(), 0, "step");
  ASSERT_TRUE(pipeline);
  EXPECT_FALSE(passes::run_pipeline(*pipeline, stage, sink));
  EXPECT_THAT(sink.text(), HasSubstr("recompute: blocks 99 to"));
}

}  // namespace
}  // namespace fem
