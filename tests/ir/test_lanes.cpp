// Lanes: what one lane may still use, no other touches; and whatever verifies runs through on lanes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/lane_programs.hpp"
#include "tests/ir/plans.hpp"

namespace fem::ir::testing {
namespace {

using ::testing::HasSubstr;

Plan read_plan(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  DiagnosticSink sink;
  std::optional<Plan> plan = parse_plan(SourceText(path.filename(), text.str()), sink);
  EXPECT_TRUE(plan) << sink.text();
  return plan.value_or(Plan{});
}

bool only_errors_of(const DiagnosticSink& sink, std::string_view code) {
  for (const Diagnostic& d : sink.all()) {
    if (d.severity == Severity::Error && d.code != code) return false;
  }
  return sink.has_errors();
}

class HandMadeLanes : public ::testing::TestWithParam<const char*> {};

// Each wait of the files is there for a reason: without it the verifier names the wait that is missing.
TEST_P(HandMadeLanes, EveryWaitIsNeededAndNamed) {
  const Plan plan = read_plan(std::string(FEM_TEST_DATA "/lanes/") + GetParam() + ".plan");
  DiagnosticSink sink;
  ASSERT_TRUE(verify(plan, sink)) << sink.text();
  EXPECT_FALSE(has_race(plan, plan.programs[0]));
  int removed = 0;
  for (std::size_t r = 0; r < plan.programs[0].ranks.size(); ++r) {
    for (std::size_t w = 0; w < plan.programs[0].ranks[r].waits.size(); ++w, ++removed) {
      Plan changed = plan;
      RankProgram& rank = changed.programs[0].ranks[r];
      const Wait wait = rank.waits[w];
      rank.waits.erase(rank.waits.begin() + static_cast<std::ptrdiff_t>(w));
      set_labels(rank);
      const std::string text = "'wait " + std::string(name(wait.lane)) + ">=" + std::to_string(wait.count) + "'";
      SCOPED_TRACE("rank " + std::to_string(r) + ", action " + std::to_string(wait.action) + ": " + text);
      DiagnosticSink errors;
      EXPECT_FALSE(verify(changed, errors));
      EXPECT_TRUE(only_errors_of(errors, "V25")) << errors.text();
      EXPECT_THAT(errors.text(), HasSubstr(text));
      EXPECT_TRUE(has_race(changed, changed.programs[0]));
    }
  }
  EXPECT_EQ(removed, 14);
}

INSTANTIATE_TEST_SUITE_P(Files, HandMadeLanes, ::testing::Values("1f1b", "split"),
                         [](const auto& info) { return info.param; });

// The verifier's clocks against a comparison of all pairs, with waits left out, moved and doubled at random.
TEST(Lanes, RacesAreFoundExactlyWhereTheyAre) {
  int races = 0, clean = 0;
  for (const PlanShape& shape : all_shapes()) {
    if (shape.microbatches > 2) continue;
    const Plan plan = lane_plan(communication_plan(shape));
    DiagnosticSink sink;
    ASSERT_TRUE(verify(plan, sink)) << name(shape) << sink.text();
    std::mt19937 random(static_cast<std::uint32_t>(shape.pp * 100 + shape.microbatches));
    for (int n = 0; n < 20; ++n) {
      Plan changed = plan;
      for (RankProgram& rank : changed.programs[0].ranks) {
        std::erase_if(rank.waits, [&](const Wait&) { return random() % 8 == 0; });
        for (Wait& wait : rank.waits) {
          if (random() % 8 == 0 && wait.count > 1) --wait.count;
        }
        set_labels(rank);
      }
      DiagnosticSink errors;
      const bool ok = verify(changed, errors);
      EXPECT_EQ(ok, !has_race(changed, changed.programs[0])) << name(shape) << errors.text() << print_plan(changed);
      EXPECT_TRUE(ok || only_errors_of(errors, "V25")) << errors.text();
      ++(ok ? clean : races);
    }
  }
  EXPECT_GT(races, 100);
  EXPECT_GT(clean, 20);
}

// The deadlock check runs each rank serially. On lanes, which may only be further ahead, everything ends too.
TEST(Lanes, WhatVerifiesRunsThroughOnLanes) {
  for (const PlanShape& shape : all_shapes()) {
    if (shape.microbatches > 4) continue;
    const Plan plan = lane_plan(communication_plan(shape));
    for (const Program& program : plan.programs) {
      for (std::uint32_t seed = 0; seed < 5; ++seed) EXPECT_EQ(run_lanes(program, seed), "") << name(shape);
    }
  }
}

// The runner can tell: two ranks that both send first block on their p2p lanes.
TEST(Lanes, TheRunnerSeesADeadlock) {
  Plan plan = lane_plan(communication_plan({.pp = 2, .microbatches = 1, .batches = false}));
  ASSERT_EQ(run_lanes(plan.programs[0], 1), "");
  std::vector<Action>& actions = plan.programs[0].ranks[1].actions;
  const auto receive = std::find_if(actions.begin(), actions.end(), [](const Action& a) { return is_p2p(a.kind); });
  ASSERT_NE(receive, actions.end());
  std::rotate(receive, receive + 1, actions.end());  // behind the lane's send
  EXPECT_NE(run_lanes(plan.programs[0], 1), "");
}

}  // namespace
}  // namespace fem::ir::testing
