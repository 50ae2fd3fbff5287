#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "passes/manager.hpp"
#include "passes/simulate.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

Configuration configuration(const std::string& text, const std::vector<std::string>& set) {
  ir::DiagnosticSink sink;
  auto result = read_configuration(source(text, "run.yaml"), set, sink);
  if (!result) throw std::runtime_error(sink.text());
  return std::move(*result);
}

std::optional<ir::Plan> plan(const std::string& name, int layers, int pp, int m, std::vector<std::string> set,
                             ir::DiagnosticSink& sink) {
  set.push_back("schedule.name=" + name);
  return make_plan(configuration(config_text(layers, pp, m), set), schedule(name), sink);
}

void lower(ir::Plan& plan) {
  ir::DiagnosticSink sink;
  const auto pipeline = passes::parse_pipeline(ir::SourceText("", passes::default_pipeline()), sink);
  if (!pipeline || !passes::run_pipeline(*pipeline, plan, sink)) throw std::runtime_error(sink.text());
}

std::vector<std::string> lines(const ir::RankProgram& rank) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < rank.actions.size();) {
    const std::size_t size = ir::batch_size(rank.actions, i);
    result.push_back(ir::action_text(std::span(rank.actions).subspan(i, size)));
    i += size;
  }
  return result;
}

// The step as docs/architecture.md writes it down.
TEST(Planner, StepOfATrainingRank) {
  ir::DiagnosticSink sink;
  const auto p = plan("1f1b", 4, 2, 2, {"model.tied=true", "data.eval=held"}, sink);
  ASSERT_TRUE(p) << sink.text();
  EXPECT_EQ(p->level, ir::Level::Stage);
  ASSERT_EQ(p->programs.size(), 2u);
  EXPECT_THAT(lines(p->programs[0].ranks[1]),
              testing::ElementsAre("ZeroGrad s1", "Forward s1 m0", "Backward s1 m0", "Forward s1 m1", "Backward s1 m1",
                                   "ReduceLoss over world", "ReduceTiedGrad s1 over tied", "AllReduce s1 over dp_cp",
                                   "GradNorm over world", "ClipGrad s1", "OptimizerStep s1 if finite"));
  EXPECT_EQ(p->programs[1].name, "eval");
  EXPECT_TRUE(p->programs[1].forward_only);
  EXPECT_THAT(lines(p->programs[1].ranks[1]),
              testing::ElementsAre("Forward s1 m0", "Forward s1 m1", "ReduceLoss over world"));
}

TEST(Planner, OneTiedReductionForEachCopyOnOneRank) {
  ir::DiagnosticSink sink;
  for (int chunks : {1, 2}) {
    const auto p = plan("looped_bfs", 4, 1, 2, {"model.tied=true", "schedule.chunks=" + std::to_string(chunks)}, sink);
    ASSERT_TRUE(p) << sink.text();
    const auto all = lines(p->programs[0].ranks[0]);
    EXPECT_EQ(std::ranges::count_if(all, [](const std::string& s) { return s.starts_with("ReduceTiedGrad"); }), 2);
    EXPECT_TRUE(ir::verify(*p, sink)) << sink.text();
  }
}

TEST(Planner, StagesCoverTheModel) {
  ir::DiagnosticSink sink;
  const auto p = plan("looped_bfs", 9, 2, 4, {"schedule.chunks=2"}, sink);
  ASSERT_TRUE(p) << sink.text();
  // Embedding and 9 blocks and head are units 0..10; the extra block goes to stage 1.
  const std::vector<ir::Stage> expected = {{.pp = 0, .prev = -1, .next = 1, .first_unit = 0, .units = 3},
                                           {.pp = 1, .prev = 0, .next = 2, .first_unit = 3, .units = 3},
                                           {.pp = 0, .prev = 1, .next = 3, .first_unit = 6, .units = 2},
                                           {.pp = 1, .prev = 2, .next = -1, .first_unit = 8, .units = 3}};
  EXPECT_EQ(p->stages, expected);
}

TEST(Planner, DivisionByHand) {
  ir::DiagnosticSink sink;
  const auto p = plan("1f1b", 4, 2, 4, {"parallel.layers_per_stage=0,4"}, sink);
  ASSERT_TRUE(p) << sink.text();
  EXPECT_EQ(p->stages[0].units, 1);  // the embedding alone
  EXPECT_EQ(p->stages[1].first_unit, 1);
  EXPECT_EQ(p->stages[1].units, 5);
}

// Both ranks hold both parts: the replicas' gradients are added in the order of the parts, then the tied copies that
// each rank holds; an evaluation sends half of the microbatches each way.
TEST(Planner, StepOfARankWithTwoDirections) {
  ir::DiagnosticSink sink;
  const auto p = plan("dualpipe", 4, 2, 4, {"model.tied=true", "data.eval=held"}, sink);
  ASSERT_TRUE(p) << sink.text();
  const std::vector<ir::Stage> expected = {
      {.pp = 0, .prev = -1, .next = 1, .first_unit = 0, .units = 3},
      {.pp = 1, .prev = 0, .next = -1, .first_unit = 3, .units = 3},
      {.pp = 1, .prev = -1, .next = 3, .replica_of = 0, .first_unit = 0, .units = 3},
      {.pp = 0, .prev = 2, .next = -1, .replica_of = 1, .first_unit = 3, .units = 3}};
  EXPECT_EQ(p->stages, expected);
  const auto tail = [&](std::size_t rank) {
    const auto all = lines(p->programs[0].ranks[rank]);
    const auto loss = std::ranges::find(all, "ReduceLoss over world");
    return std::vector<std::string>(loss, all.end());
  };
  const auto step = [](std::string a, std::string b, std::string low, std::string high) {
    return std::vector<std::string>{"ReduceLoss over world",
                                    "ReduceReplicaGrad " + a + " over replica",
                                    "ReduceReplicaGrad " + b + " over replica",
                                    "ReduceTiedGrad " + low + " over tied",
                                    "ReduceTiedGrad " + high + " over tied",
                                    "AllReduce " + low + " over dp_cp",
                                    "AllReduce " + high + " over dp_cp",
                                    "GradNorm over world",
                                    "ClipGrad " + low,
                                    "ClipGrad " + high,
                                    "OptimizerStep " + low + " if finite",
                                    "OptimizerStep " + high + " if finite"};
  };
  EXPECT_EQ(tail(0), step("s0", "s3", "s0", "s3"));
  EXPECT_EQ(tail(1), step("s2", "s1", "s1", "s2"));
  EXPECT_THAT(lines(p->programs[1].ranks[0]),
              testing::ElementsAre("Forward s0 m0", "Forward s0 m1", "Forward s3 m2", "Forward s3 m3",
                                   "ReduceLoss over world"));
  EXPECT_TRUE(ir::verify(*p, sink)) << sink.text();
}

// Every file over the grid, with evaluation, tied and untied: a verified plan at communication level whose text reads
// back, or a refusal by the file's own condition.
TEST(Planner, EveryScheduleVerifiesOnTheGrid) {
  for (const std::string& name : schedule_names(folders())) {
    const Schedule s = schedule(name);
    int verified = 0;
    for (int v = s.chunks.low; v <= std::min(s.chunks.high, 3); ++v) {
      for (int pp = 1; pp <= 8; ++pp) {
        for (int m : std::set{1, 2, 3, pp, pp + 1, 2 * pp, 2 * pp + 1, 24}) {
          ir::DiagnosticSink sink;
          const bool tied = (m / 2 + pp) % 2;
          const std::vector<std::string> set = {"schedule.chunks=" + std::to_string(v), "data.eval=held",
                                                std::string("model.tied=") + (tied ? "true" : "false")};
          auto p = plan(name, 24, pp, m, set, sink);
          const auto broken = broken_requirement(s, sizes(s, pp, m, v), sink);
          ASSERT_TRUE(broken);
          if (*broken) {
            EXPECT_FALSE(p) << name;
            EXPECT_THAT(sink.text(), testing::HasSubstr("cannot do this"));
            continue;
          }
          ASSERT_TRUE(p) << name << " pp=" << pp << " m=" << m << "\n" << sink.text();
          ASSERT_TRUE(ir::verify(*p, sink)) << sink.text();
          ASSERT_NO_THROW(lower(*p)) << name << " pp=" << pp << " m=" << m << " v=" << v;
          ASSERT_TRUE(ir::verify(*p, sink)) << sink.text();
          ir::DiagnosticSink again;
          const std::string text = ir::print_plan(*p);
          const auto parsed = ir::parse_plan(ir::SourceText("plan", text), again);
          ASSERT_TRUE(parsed && *parsed == *p) << again.text();
          ++verified;
        }
      }
    }
    EXPECT_GE(verified, s.placement == PlacementKind::Bidirectional ? 8 : 15) << name;
  }
}

// The placement is the schedule's own: no setting changes it, and a plan whose stages are moved is refused.
TEST(Planner, AScheduleOwnsItsPlacement) {
  ir::DiagnosticSink unknown;
  const std::vector<std::string> set = {"schedule.placement=v"};
  EXPECT_FALSE(read_configuration(source(config_text(8, 2, 4), "run.yaml"), set, unknown));
  EXPECT_THAT(unknown.text(), testing::HasSubstr("placement"));
  for (const std::string name : {"interleaved_1f1b", "zb_v"}) {
    ir::DiagnosticSink sink;
    auto p = plan(name, 8, 2, 4, {}, sink);
    ASSERT_TRUE(p) << sink.text();
    std::swap(p->stages[2].pp, p->stages[3].pp);
    EXPECT_FALSE(ir::verify(*p, sink));
    EXPECT_THAT(sink.text(), testing::HasSubstr("[V06]"));
  }
}

// An order that was written for the other placement is another order of the same model, or one that cannot run: then it
// is refused.
TEST(Planner, AnOrderUnderAnotherPlacementIsRightOrRefused) {
  int right = 0, refused = 0;
  for (const std::string& name : schedule_names(folders())) {
    const Schedule s = schedule(name);
    if (s.placement == PlacementKind::Bidirectional || s.chunks.low > 2 || s.chunks.high < 2) continue;
    Schedule other = s;
    other.placement = s.placement == PlacementKind::V ? PlacementKind::Loop : PlacementKind::V;
    other.chunks = {2, 2, 2};
    for (int pp : {2, 3, 4}) {
      SCOPED_TRACE(name + " pp=" + std::to_string(pp));
      ir::DiagnosticSink sink;
      auto p = make_plan(configuration(config_text(16, pp, 4 * pp), {"schedule.name=" + name}), other, sink);
      if (!p || !ir::verify(*p, sink)) {
        EXPECT_TRUE(sink.has_errors());
        ++refused;
        continue;
      }
      ASSERT_NO_THROW(lower(*p));
      EXPECT_TRUE(ir::verify(*p, sink)) << sink.text();
      ++right;
    }
  }
  EXPECT_GT(right, 0);
  EXPECT_GT(refused, 0);
}

// Fewer microbatches than pipeline ranks: the schedule runs, or says what it needs and which batch would do.
TEST(Planner, FewerMicrobatchesThanRanks) {
  for (const std::string name : {"gpipe", "1f1b", "looped_bfs", "zb_h1", "zb_h2"}) {
    for (int pp = 2; pp <= 8; ++pp) {
      for (int m = 1; m < pp; ++m) {
        ir::DiagnosticSink sink;
        auto p = plan(name, 24, pp, m, {}, sink);
        ASSERT_TRUE(p) << sink.text();
        lower(*p);
        EXPECT_TRUE(passes::simulate(*p, p->programs[0], passes::UnitCosts(), sink)) << name << sink.text();
      }
    }
  }
  ir::DiagnosticSink sink;
  EXPECT_FALSE(plan("interleaved_1f1b", 24, 4, 3, {}, sink));
  EXPECT_EQ(
      sink.all()[0].message,
      "schedule 'interleaved_1f1b' cannot do this: a group of 4 microbatches is not between p=4 and m=3 (p=4, m=3, "
      "v=2, group=4)");
  EXPECT_EQ(sink.all()[1].message, "batch.global=3 gives m=3; nearest: 4");
}

TEST(Planner, WorkingBatchesOnBothSides) {
  ir::DiagnosticSink sink;
  EXPECT_FALSE(plan("interleaved_1f1b", 24, 4, 24, {"parallel.dp=2", "batch.micro=2"}, sink));  // m = 6
  EXPECT_EQ(
      sink.all()[0].message,
      "schedule 'interleaved_1f1b' cannot do this: the last group has 2 microbatches, fewer than p=4 (p=4, m=6, v=2, "
      "group=4)");
  EXPECT_EQ(sink.all()[1].message, "batch.global=24 gives m=6; nearest: 16 or 32");
}

struct Refusal {
  const char* schedule;
  std::vector<std::string> set;
  const char* message;
};

TEST(Planner, RefusalsNameTheValues) {
  for (const Refusal& row : std::vector<Refusal>{
           {"1f1b", {"schedule.chunks=2"}, "schedule.chunks=2: schedule '1f1b' takes 1"},
           {"interleaved_1f1b", {"schedule.chunks=1"}, "schedule.chunks=1: schedule 'interleaved_1f1b' takes 2 to 64"},
           {"interleaved_1f1b",
            {"schedule.params=gruop=4"},
            "schedule.params: schedule 'interleaved_1f1b' has no parameter 'gruop', did you mean 'group'?"},
           {"interleaved_1f1b", {"schedule.params=group=x"}, "schedule.params: group: 'x' is not an integer"},
           {"interleaved_1f1b", {"schedule.params=group=4,group=4"}, "schedule.params: 'group' stands twice"},
           {"interleaved_1f1b", {"schedule.params=group"}, "schedule.params: 'group' does not read name=value"},
           {"1f1b", {"parallel.tp=2"}, "tp=2: units run with tp=1 only in this version"},
           {"1f1b", {"parallel.cp=2"}, "cp=2: units run with cp=1 only in this version"},
           {"1f1b", {"parallel.dp=2", "parallel.ep=2"}, "ep=2: units run with ep=1 only in this version"},
           {"1f1b", {"batch.micro=3"}, "batch.global=8 is not a multiple of dp*micro=3; nearest: 6 or 9"},
           {"1f1b",
            {"parallel.pp=32"},
            "model.layers=24 is less than the 32 stages (pp=32 x chunks=1); nearest: 32 (or fewer ranks or chunks)"}}) {
    ir::DiagnosticSink sink;
    EXPECT_FALSE(plan(row.schedule, 24, 2, 8, row.set, sink)) << row.message;
    ASSERT_FALSE(sink.all().empty());
    EXPECT_EQ(sink.all()[0].message, row.message);
    EXPECT_EQ(sink.all()[0].where.file == "--set" || sink.all()[0].where.file == "run.yaml", true);
    EXPECT_GT(sink.all()[0].where.line, 0) << row.message;
  }
}

TEST(Planner, ParametersReachTheSchedule) {
  ir::DiagnosticSink sink;
  const auto a = plan("interleaved_1f1b", 24, 2, 8, {}, sink);
  const auto b = plan("interleaved_1f1b", 24, 2, 8, {"schedule.params=group=2"}, sink);
  const auto c = plan("interleaved_1f1b", 24, 2, 8, {"schedule.params=group=4"}, sink);
  ASSERT_TRUE(a && b && c) << sink.text();
  EXPECT_EQ(a->programs, b->programs);
  EXPECT_NE(a->programs, c->programs);
}

}  // namespace
}  // namespace fem::compiler::test
