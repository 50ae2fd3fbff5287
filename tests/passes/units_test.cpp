// Stages to units, ZeRO written out, recompute: what stands where, and that it verifies for any order.
#include <algorithm>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/memory_blocks.hpp"
#include "ir/text.hpp"
#include "ir/units.hpp"
#include "orders.hpp"
#include "passes/manager.hpp"

namespace fem {
namespace {

using ir::Action;
using ir::ActionKind;
using test::Placement;
using ::testing::HasSubstr;

ir::Plan sized(ir::Plan plan, std::int64_t zero, const std::string& reduce) {
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global *= 2;
  plan.settings.parallel.zero = zero;
  plan.settings.parallel.reduce = reduce;
  return plan;
}

ir::Plan run(const std::string& text, ir::Plan plan) {
  ir::DiagnosticSink sink;
  const auto pipeline = passes::parse_pipeline(ir::SourceText("pipeline", text), sink);
  EXPECT_TRUE(pipeline && passes::run_pipeline(*pipeline, plan, sink)) << sink.text();
  return plan;
}

std::string text(const ir::Plan& plan) {
  std::string out;
  for (const Action& a : plan.programs[0].ranks[0].actions) out += ir::action_text({&a, 1}) + "\n";
  return out;
}

// One rank, units embedding, one block, head; one microbatch.
ir::Plan one_rank() {
  return test::make_plan(Placement::Loop, 1, 1, 1, test::gpipe(1, 1));
}

TEST(Units, Zero3GathersEachUnitAroundItsUse) {
  const std::string program = text(run("communication,units,recompute", sized(one_rank(), 3, "step")));
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
    const std::string program = text(run("communication,units", sized(one_rank(), zero, "step")));
    EXPECT_THAT(program, ::testing::EndsWith("OptimizerStep s0 if finite\nUnshard s0 over dp_cp\n"));
    EXPECT_EQ(program.find("Reshard"), std::string::npos);
  }
}

TEST(Units, GradientsAreReducedAfterEachBackwardButTiedOnes) {
  ir::Plan plan = sized(one_rank(), 2, "microbatch");
  EXPECT_THAT(text(run("communication,units", plan)),
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
  const std::string program = text(run("communication,units", plan));
  const std::string head = std::to_string(ir::unit_count(plan.settings) - 1);
  EXPECT_THAT(program, ::testing::StartsWith("ZeroGrad s0 u0\nZeroGrad s0 u" + head + "\n"));
  EXPECT_THAT(program, HasSubstr("ReduceTiedGrad s0 over tied\nReduceScatter s0 u0 over dp_cp\nReduceScatter s0 u" +
                                 head + " over dp_cp\n"));
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
          for (const char* reduce : {"step", "microbatch"}) {
            for (const char* recompute : {"", ",recompute", ",recompute{mode=selective,every=2}"}) {
              SCOPED_TRACE(std::string(reduce) + recompute + " zero=" + std::to_string(zero));
              const ir::Plan plan = run(std::string("communication,units") + recompute, sized(order, zero, reduce));
              EXPECT_EQ(plan.level, ir::Level::Unit);
            }
          }
        }
      }
    }
  }
}

// B and W of a split backward share one recompute: a second one would cost a forward and hold its tensors twice.
TEST(Recompute, StandsOnceForEachForwardAndBeforeTheInputGradient) {
  const ir::Plan plan = run("communication,units,recompute",
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
      const ir::Plan plan = run(std::string("communication,units") + recompute, divided);
      for (std::size_t r = 0; r < 2; ++r) {
        const std::int64_t peak = ir::memory_peak(plan, plan.programs[0], r).bytes();
        EXPECT_LE(peak, before[r]) << "zero " << zero << recompute << " rank " << r;
        before[r] = peak;
      }
    }
  }
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
