// What differs between two plans.
#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/plan_diff.hpp"
#include "ir/builder.hpp"
#include "ir/text.hpp"
#include "tests/interchange/files.hpp"

namespace fem::compiler::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ir::Plan plan_of(std::vector<std::vector<ir::Action>> ranks) {
  ir::Plan plan;
  plan.settings.parallel.pp = static_cast<std::int64_t>(ranks.size());
  plan.programs.push_back({"train", false, 8, {}});
  for (auto& actions : ranks) plan.programs[0].ranks.push_back({std::move(actions), {}});
  return plan;
}

std::string text(const ir::Plan& a, const ir::Plan& b, DiffOptions options = {}) {
  return diff_text(diff_plans(a, b), a, b, options);
}

const std::vector<ir::Action> kFour = {ir::forward(0, 0), ir::forward(0, 1), ir::forward(0, 2), ir::backward(0, 0)};

TEST(PlanDiff, EqualPlans) {
  const ir::Plan plan = plan_of({kFour});
  EXPECT_FALSE(diff_plans(plan, plan).any());
  EXPECT_EQ(text(plan, plan), "no difference\n");
}

TEST(PlanDiff, SettingsAndLayout) {
  ir::Plan a = plan_of({kFour}), b = a;
  b.settings.schedule.name = "zb_h1";
  b.settings.batch.global = 16;
  b.level = ir::Level::Communication;
  a.stages = {{.pp = 0, .prev = -1, .next = -1, .first_unit = 0, .units = 4}};
  b.stages = {{.pp = 0, .prev = -1, .next = 1, .first_unit = 0, .units = 2},
              {.pp = 0, .prev = 0, .next = -1, .first_unit = 2, .units = 2}};
  EXPECT_EQ(text(a, b),
            "settings\n"
            "  schedule.name  1f1b -> zb_h1\n"
            "  batch.global   0 -> 16\n"
            "layout\n"
            "  level    stage -> communication\n"
            "  stage 0  pp=0 prev=-1 next=-1 units=0..3 -> pp=0 prev=-1 next=1 units=0..1\n"
            "  stage 1  none -> pp=0 prev=0 next=-1 units=2..3\n");
}

// The backward passes two forwards that stay where they are.
TEST(PlanDiff, MovedActionsAreSaidInWords) {
  const ir::Plan a = plan_of({kFour, kFour});
  const ir::Plan b = plan_of({kFour, {ir::forward(0, 0), ir::backward(0, 0), ir::forward(0, 1), ir::forward(0, 2)}});
  EXPECT_EQ(text(a, b),
            "program train\n"
            "rank 1: 4 actions -> 4: 3 stay, 1 moved, 0 only in A, 0 only in B\n"
            "  rank 1: Backward s0 m0 moved 2 actions earlier (from 3 to 1)\n");
  EXPECT_THAT(text(b, a), HasSubstr("rank 1: Backward s0 m0 moved 2 actions later (from 1 to 3)"));
  EXPECT_EQ(text(a, b, {.rank = 0}), "program train\n");
}

// Insertions before do not count as moves, and a batch is one action.
TEST(PlanDiff, AddedRemovedAndTheirCounts) {
  std::vector<ir::Action> other = {ir::zero_grad(0), ir::forward(0, 0), ir::forward(0, 1)};
  ir::append_batch(other, {ir::send_forward(0, 1, 1), ir::recv_backward(0, 0, 1)});
  other.push_back(ir::backward(0, 0));
  const std::string said = text(plan_of({kFour}), plan_of({other}), {.table = true});
  EXPECT_EQ(said,
            "program train\n"
            "rank 0: 4 actions -> 5: 3 stay, 0 moved, 1 only in A, 2 only in B\n"
            "  Forward         3 -> 2\n"
            "  SendForward     0 -> 1\n"
            "  RecvBackward    0 -> 1\n"
            "  ZeroGrad        0 -> 1\n"
            "  rank 0: ZeroGrad s0 only in B (at 0)\n"
            "  rank 0: Forward s0 m2 only in A (at 2)\n"
            "  rank 0: SendForwardRecvBackward s0 m1 to 1, s0 m0 from 1 only in B (at 3)\n"
            "      A       B\n"
            "              0  + ZeroGrad s0\n"
            "      0       1    Forward s0 m0\n"
            "      1       2    Forward s0 m1\n"
            "      2          - Forward s0 m2\n"
            "              3  + SendForwardRecvBackward s0 m1 to 1, s0 m0 from 1\n"
            "      3       4    Backward s0 m0\n");
}

TEST(PlanDiff, TableLeavesOutWhatIsFarFromADifference) {
  std::vector<ir::Action> a, b;
  for (int m = 0; m < 8; ++m) a.push_back(ir::forward(0, m));
  b = a;
  b.pop_back();
  b.insert(b.begin(), ir::zero_grad(0));
  EXPECT_THAT(text(plan_of({a}), plan_of({b}), {.table = true}), HasSubstr("      A       B\n"
                                                                           "              0  + ZeroGrad s0\n"
                                                                           "      0       1    Forward s0 m0\n"
                                                                           "      1       2    Forward s0 m1\n"
                                                                           "    ...     ...\n"
                                                                           "      5       6    Forward s0 m5\n"
                                                                           "      6       7    Forward s0 m6\n"
                                                                           "      7          - Forward s0 m7\n"));
}

TEST(PlanDiff, ProgramsAndRanksOfOneSideOnly) {
  ir::Plan a = plan_of({kFour, kFour}), b = plan_of({kFour});
  a.programs.push_back({"eval", true, 8, {{kFour, {}}}});
  b.programs[0].microbatches = 4;
  EXPECT_THAT(text(a, b), AllOf(HasSubstr("settings\n  parallel.pp  2 -> 1\n"),
                                HasSubstr("program train\n  microbatches  8 -> 4\n  ranks         2 -> 1\n"),
                                HasSubstr("rank 1: 4 actions -> 0: 0 stay, 0 moved, 4 only in A, 0 only in B\n"),
                                HasSubstr("program eval: only in A\n")));
  EXPECT_THAT(text(b, a), HasSubstr("program eval: only in B\n"));
}

TEST(PlanDiff, WaitsBelongToTheirActions) {
  ir::Plan a = plan_of({kFour}), b = a;
  b.programs[0].ranks[0].waits = {{2, ir::Lane::P2p, 1}};
  EXPECT_THAT(text(a, b), AllOf(HasSubstr("Forward s0 m2 only in A (at 2)"),
                                HasSubstr("Forward s0 m2 wait p2p>=1 only in B (at 2)")));
}

TEST(PlanDiff, LongListsAreCut) {
  std::vector<ir::Action> none;
  std::vector<ir::Action> many;
  for (int m = 0; m < 30; ++m) many.push_back(ir::forward(0, m));
  EXPECT_THAT(text(plan_of({none}), plan_of({many})), HasSubstr("  and 18 more differences (--all shows them)\n"));
  EXPECT_THAT(text(plan_of({none}), plan_of({many}), {.all = true}),
              AllOf(HasSubstr("Forward s0 m29 only in B"), Not(HasSubstr("more differences"))));
}

// Applying the script to A gives B; what stays is as long as a longest common subsequence by the textbook's quadratic
// table.
TEST(PlanDiff, ScriptsAreRightAndShortest) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<ir::Action> a, b;
    for (int m = 0; m < 24; ++m) {
      if (random() % 4) a.push_back(ir::forward(0, m));
      if (random() % 4) b.push_back(ir::forward(0, m));
    }
    for (int swaps = static_cast<int>(random() % 12); swaps > 0 && b.size() > 1; --swaps) {
      std::swap(b[random() % b.size()], b[random() % b.size()]);
    }
    const PlanDifference difference = diff_plans(plan_of({a}), plan_of({b}));
    if (a == b) {
      EXPECT_FALSE(difference.any());
      continue;
    }
    const RankDifference& rank = difference.programs.at(0).ranks.at(0);
    std::vector<ir::Action> seen_a, seen_b;
    for (const Edit& edit : rank.script) {
      const bool from_a =
          edit.kind == EditKind::Keep || edit.kind == EditKind::OnlyA || edit.kind == EditKind::MoveFrom;
      const bool from_b = edit.kind == EditKind::Keep || edit.kind == EditKind::OnlyB || edit.kind == EditKind::MoveTo;
      if (from_a) seen_a.push_back(a.at(static_cast<std::size_t>(edit.a)));
      if (from_b) seen_b.push_back(b.at(static_cast<std::size_t>(edit.b)));
      if (edit.kind == EditKind::Keep) {
        EXPECT_EQ(seen_a.back(), seen_b.back());
      }
      if (edit.kind == EditKind::MoveFrom) {
        EXPECT_NE(edit.shift, 0);
      }
    }
    EXPECT_EQ(seen_a, a);
    EXPECT_EQ(seen_b, b);
    std::vector<std::vector<int>> lcs(a.size() + 1, std::vector<int>(b.size() + 1, 0));
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) {
        lcs[i + 1][j + 1] = a[i] == b[j] ? lcs[i][j] + 1 : std::max(lcs[i][j + 1], lcs[i + 1][j]);
      }
    }
    EXPECT_EQ(rank.kept, lcs[a.size()][b.size()]);
  }
}

// 100,000 actions, once nearly the same and once in another order altogether: n log n either way.
TEST(PlanDiff, LongPrograms) {
  std::vector<ir::Action> a(100'000);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = ir::forward(0, static_cast<int>(i));
  std::vector<ir::Action> b = a, c = a;
  std::rotate(b.begin() + 100, b.begin() + 50'000, b.begin() + 50'001);
  std::ranges::reverse(c);
  const PlanDifference near = diff_plans(plan_of({a}), plan_of({b})), far = diff_plans(plan_of({a}), plan_of({c}));
  EXPECT_EQ(near.programs.at(0).ranks.at(0).moved, 1);
  EXPECT_EQ(near.programs.at(0).ranks.at(0).kept, 99'999);
  EXPECT_EQ(far.programs.at(0).ranks.at(0).kept, 1);
}

TEST(PlanDiff, CommandAndExitCodes) {
  TemporaryFolder folder;
  std::ostringstream out, err;
  const Streams streams{out, err};
  const auto make = [&](const std::string& name, const std::string& schedule) {
    PlanArguments arguments;
    arguments.config = folder.write("run.yaml", config_text(4, 2, 4));
    arguments.output = (folder.path() / name).string();
    arguments.set = {"schedule.name=" + schedule};
    EXPECT_EQ(plan_command(arguments, folders(), streams), kSuccess) << err.str();
    return *arguments.output;
  };
  DiffArguments arguments;
  arguments.a = make("a.fem", "1f1b");
  arguments.b = make("b.fem", "gpipe");
  arguments.exit_code = true;
  out.str("");
  EXPECT_EQ(diff_command(arguments, streams), kDiagnosed);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("schedule.name  1f1b -> gpipe"), HasSubstr("program train\nrank 0: ")));
  arguments.exit_code = false;
  EXPECT_EQ(diff_command(arguments, streams), kSuccess);
  arguments.b = arguments.a;
  arguments.exit_code = true;
  out.str("");
  EXPECT_EQ(diff_command(arguments, streams), kSuccess);
  EXPECT_EQ(out.str(), "A " + arguments.a + "\nB " + arguments.a + "\nno difference\n");
  arguments.rank = 2;
  EXPECT_EQ(diff_command(arguments, streams), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("--rank: error: 2 is no pipeline rank of these plans; valid: 0 to 1"));
  arguments.a = (folder.path() / "none").string();
  EXPECT_EQ(diff_command(arguments, streams), kDiagnosed);
}

}  // namespace
}  // namespace fem::compiler::test
