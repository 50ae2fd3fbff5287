#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.hpp"
#include "ir/text.hpp"
#include "tests/ir/plans.hpp"

namespace fem::ir::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::optional<Plan> parse(const std::string& text, std::string* errors = nullptr, PlanLocations* locations = nullptr) {
  DiagnosticSink sink;
  std::optional<Plan> plan = parse_plan(SourceText("p.plan", text), sink, locations);
  EXPECT_EQ(plan.has_value(), !sink.has_errors());
  if (errors) {
    *errors = sink.text();
  } else {
    EXPECT_EQ(sink.text(), "");
  }
  return plan;
}

std::string errors_of(const std::string& text) {
  std::string errors;
  parse(text, &errors);
  return errors;
}

TEST(Text, RoundTripsEveryShapeAtBothLevels) {
  for (const PlanShape& shape : all_shapes()) {
    for (const Plan& plan : {stage_plan(shape), communication_plan(shape)}) {
      const std::string text = print_plan(plan);
      const std::optional<Plan> parsed = parse(text);
      ASSERT_TRUE(parsed) << name(shape);
      EXPECT_EQ(*parsed, plan) << name(shape);
      EXPECT_EQ(print_plan(*parsed), text) << name(shape);
      EXPECT_EQ(plan_digest(*parsed), plan_digest(plan));
    }
  }
}

// One action of every row with all its operands, waits, labels, lanes: whatever can be said must survive.
TEST(Text, RoundTripsEveryRowAndEveryTail) {
  Plan plan = stage_plan({});
  plan.level = Level::Lane;
  RankProgram& rank = plan.programs[0].ranks[0];
  rank.actions.clear();
  for (int k = 0; k < kActionKinds; ++k) {
    for (const bool full : {false, true}) {
      Action a = action(static_cast<ActionKind>(k));
      const ActionInfo& row = info(a.kind);
      if (row.has(operand::kS)) a.stage = 1;
      if (row.has(operand::kM)) a.microbatch = 2147483647;
      if (row.has(operand::kPeer)) a.peer = 32767;
      if (row.has(operand::kG)) a.group = static_cast<Group>(k % kGroups);
      if (row.has(operand::kU) && full) a.unit = 12;
      if (row.has(operand::kSlot) && full) a.slot = 3;
      if (full) {
        a.lane = static_cast<Lane>(k % kLanes);
        a.flags = Action::kIfFinite;
        a.label = 4294967295u;
        const auto index = static_cast<std::uint32_t>(rank.actions.size());
        rank.waits.push_back({index, Lane::P2p, 1});
        rank.waits.push_back({index, Lane::Copy, 4294967295u});
      }
      rank.actions.push_back(a);
    }
  }
  plan.stages[1].replica_of = 0;
  const std::string text = print_plan(plan);
  const std::optional<Plan> parsed = parse(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, plan);
  EXPECT_EQ(print_plan(*parsed), text);
}

TEST(Text, SpellsActionsAsDocumented) {
  EXPECT_EQ(action_text(std::vector{forward(1, 3)}), "Forward s1 m3");
  EXPECT_EQ(action_text(std::vector{send_forward(0, 1, 2)}), "SendForward s0 m1 to 2");
  EXPECT_EQ(action_text(std::vector{recv_backward(0, 1, 2)}), "RecvBackward s0 m1 from 2");
  EXPECT_EQ(action_text(std::vector{reduce_loss()}), "ReduceLoss over world");
  EXPECT_EQ(action_text(std::vector{reduce_tied_grad(0)}), "ReduceTiedGrad s0 over tied");
  EXPECT_EQ(action_text(std::vector{optimizer_step(0)}), "OptimizerStep s0 if finite");
  Action free = action(ActionKind::Free, 0, 1);
  free.unit = 3;
  free.slot = 2;
  EXPECT_EQ(action_text(std::vector{free}), "Free s0 m1 u3 k2");
  std::vector<Action> batch;
  append_batch(batch, {send_forward(0, 1, 1), recv_backward(0, 0, 1)});
  EXPECT_EQ(action_text(batch), "SendForwardRecvBackward s0 m1 to 1, s0 m0 from 1");
  batch.clear();
  append_batch(batch, {forward(0, 1), backward(0, 0)});
  EXPECT_EQ(action_text(batch), "ForwardBackward s0 m1, s0 m0");
  EXPECT_EQ(batch_size(batch, 0), 2u);
  EXPECT_EQ(action_text({}), "");
}

constexpr const char* kSmall =
    "femtotron plan v1\n"
    "# a comment\n"
    "\n"
    "model layers=2 tied=true  # and another\n"
    "level lane\n"
    "stage 0 pp=0 prev=-1 next=-1 units=0..3\n"
    "program train microbatches=2\n"
    "rank 0\n"
    "  ZeroGrad s0 @1\n"
    "\tForwardBackward s0 m1, s0 m0 wait p2p>=3 collective>=1 @7\r\n"
    "  SendForwardRecvBackward s0 m1 to 1, s0 m0 from 1 on copy\n";

TEST(Text, ReadsCommentsBlankLinesAndDefaults) {
  PlanLocations locations;
  const std::optional<Plan> plan = parse(kSmall, nullptr, &locations);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->settings.model.layers, 2);
  EXPECT_TRUE(plan->settings.model.tied);
  EXPECT_EQ(plan->settings.optimizer.beta2, 0.95);
  const RankProgram& rank = plan->programs[0].ranks[0];
  ASSERT_EQ(rank.actions.size(), 5u);
  EXPECT_EQ(rank.actions[1].label, 7u);
  EXPECT_TRUE(rank.actions[1].joined());
  EXPECT_EQ(rank.waits, (std::vector<Wait>{{1, Lane::P2p, 3}, {1, Lane::Collective, 1}}));
  EXPECT_EQ(rank.actions[3].lane, Lane::Copy);
  EXPECT_EQ(rank.actions[4].lane, Lane::Copy);
  const auto& lines = locations.action[0][0];
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].line, 9);
  EXPECT_EQ(lines[0].column, 3);
  EXPECT_EQ(lines[2].line, 10);
  EXPECT_EQ(lines[2].column, 25) << "the operands of the second half";
  EXPECT_EQ(locations.stage_line, std::vector<int>{6});
  EXPECT_EQ(locations.program_line, std::vector<int>{7});
  EXPECT_EQ(locations.rank_line[0], std::vector<int>{8});
  EXPECT_EQ(locations.section_line[0], 4);
  EXPECT_EQ(locations.section_line[1], 0);
}

struct Mistake {
  const char *from, *to, *message;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.from << " -> " << mistake.to; }

class Mistakes : public ::testing::TestWithParam<Mistake> {};

// Each replaces a part of the small plan; the message begins with the place.
TEST_P(Mistakes, AreNamedWithTheirPlace) {
  std::string text = kSmall;
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(GetParam().from).size(), GetParam().to);
  EXPECT_THAT(errors_of(text), StartsWith(std::string("p.plan:") + GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Parser, Mistakes,
    ::testing::Values(
        Mistake{"plan v1", "plan v2", "1:16: error: plan v2: this program reads v1\n"},
        Mistake{"femtotron", "femtotrom", "1:1: error: not a plan: the first line must be 'femtotron plan v1'\n"},
        Mistake{"layers", "lyers", "4:7: error: unknown key 'lyers' of 'model', did you mean 'layers'?\n"},
        Mistake{"layers=2", "layers=two", "4:14: error: model.layers = 'two' is not an integer\n"},
        Mistake{"layers=2", "layers", "4:7: error: expected '=' after 'layers'\n"},
        Mistake{"tied=true", "layers=3", "4:16: error: a second value of 'layers'\n"},
        Mistake{"tied=true", "tied=yes", "4:21: error: model.tied = 'yes' is not one of true|false\n"},
        Mistake{"tied=true", "family=lama",
                "4:23: error: model.family = 'lama' is not one of llama, did you mean 'llama'?\n"},
        Mistake{"tied=true", "family=\"llama", "4:23: error: unclosed quotes or an unknown escape"},
        Mistake{"model", "modle", "4:1: error: unknown keyword 'modle', did you mean 'model'?\n"},
        Mistake{"level lane", "level line", "5:7: error: unknown level 'line', did you mean 'lane'?\n"},
        Mistake{"level lane", "level lane\nmodel layers=2", "6:1: error: settings 'model' must stand before 'level'\n"},
        Mistake{"level lane", "batch micro=1\nbatch micro=1\nlevel lane", "6:1: error: a second line of 'batch'\n"},
        Mistake{"stage 0", "stage 1", "6:7: error: stage '1': expected stage 0\n"},
        Mistake{"next=-1", "nxt=-1", "6:22: error: expected 'next=N', found 'nxt=-1'\n"},
        Mistake{"next=-1", "next=32768",
                "6:22: error: next in 'next=32768' must be a number between -1 and 32767\n"},
        Mistake{"0..3", "3..1", "6:30: error: expected 'units=FIRST..LAST', found 'units=3..1'\n"},
        Mistake{"microbatches=2", "microbatches=3000000000",
                "7:15: error: microbatches in 'microbatches=3000000000' must be a number between 0 and 2147483647\n"},
        Mistake{"microbatches=2", "microbatches=2 forwardonly",
                "7:30: error: unexpected 'forwardonly' at the line's end\n"},
        Mistake{"rank 0", "rank 100000", "8:6: error: rank '100000': expected rank 0\n"},
        Mistake{"ZeroGrad s0", "ZeroGrad", "9:12: error: ZeroGrad needs a stage 'sN', found '@1'\n"},
        Mistake{"ZeroGrad s0", "ZeroGrad s40000",
                "9:12: error: stage 's40000' of ZeroGrad must be 's' and a number between 0 and 32767\n"},
        Mistake{"ZeroGrad s0", "ZeroGrad s-1", "9:12: error: stage 's-1' of ZeroGrad must be 's' and a number"},
        Mistake{"ZeroGrad", "ZeroGard", "9:3: error: unknown action 'ZeroGard', did you mean 'ZeroGrad'?\n"},
        Mistake{"ZeroGrad", "zerograd", "9:3: error: unknown action or keyword 'zerograd', did you mean 'ZeroGrad'?\n"},
        Mistake{"ForwardBackward", "ForwardBakward",
                "10:9: error: unknown action 'Bakward', did you mean 'Backward'?\n"},
        Mistake{"@1", "@0", "9:15: error: label '@0' must be '@' and a number between 1 and 4294967295\n"},
        Mistake{", s0 m0 wait", " s0 m0 wait", "10:24: error: expected ', ' and the operands of Backward\n"},
        Mistake{"p2p>=3", "p3p>=3", "10:36: error: unknown lane 'p3p', did you mean 'p2p'?\n"},
        Mistake{"p2p>=3", "p2p>=0", "10:41: error: count '0' must be a number between 1 and 4294967295\n"},
        Mistake{"p2p>=3", "p2p", "10:36: error: expected 'LANE>=N' after 'wait'\n"},
        Mistake{"to 1", "from 1", "11:33: error: SendForward needs a peer 'to N', found 'from'\n"},
        Mistake{"to 1", "to x", "11:36: error: peer 'x' of SendForward must be a number between 0 and 32767\n"},
        Mistake{"on copy", "on kopy", "11:55: error: unknown lane 'kopy', did you mean 'copy'?\n"},
        Mistake{"on copy", "if infinite", "11:55: error: expected 'finite' after 'if'\n"},
        Mistake{"on copy", "im copy", "11:52: error: unexpected 'im' after RecvBackward: expected 'if finite'"}));

TEST(Text, PartsOutOfOrderAreErrors) {
  EXPECT_THAT(errors_of(""), HasSubstr("not a plan"));
  EXPECT_THAT(errors_of("femtotron plan v1"), HasSubstr("the plan has no 'level' line"));
  EXPECT_THAT(errors_of("femtotron plan v1\nstage 0\n"), HasSubstr("2:7: error: a stage before the 'level' line"));
  EXPECT_THAT(errors_of("femtotron plan v1\nlevel stage\nrank 0\n"), HasSubstr("a rank before the first 'program'"));
  EXPECT_THAT(errors_of("femtotron plan v1\nlevel stage\nprogram p microbatches=1\nForward s0 m0\n"),
              HasSubstr("4:1: error: an action outside a 'rank' of a 'program'"));
  EXPECT_THAT(errors_of("femtotron plan v1\nlevel stage\nprogram p microbatches=1\nstage 0\n"),
              HasSubstr("a stage after the first 'program'"));
  EXPECT_THAT(errors_of("femtotron plan v1\nlevel stage\nlevel stage\n"), HasSubstr("a second 'level' line"));
  EXPECT_THAT(errors_of("femtotron plan v1\nlevel stage\nprogram p microbatches=1\nrank 0\n AllReduce s0 over dq\n"),
              HasSubstr("5:20: error: unknown group 'dq', did you mean 'dp'?"));
}

TEST(Text, StopsAfterTwentyErrors) {
  std::string text = "femtotron plan v1\nlevel stage\nprogram p microbatches=1\nrank 0\n";
  for (int i = 0; i < 1000; ++i) text += "  Fowrard s0 m0\n";
  DiagnosticSink sink;
  EXPECT_FALSE(parse_plan(SourceText("p.plan", text), sink));
  EXPECT_EQ(sink.errors(), 20);
  EXPECT_THAT(sink.text(), HasSubstr("note: too many errors, the rest was not read"));
}

TEST(Text, TheDigestIsFnv1aOfTheText) {
  const Plan plan = communication_plan({});
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : print_plan(plan)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  EXPECT_EQ(plan_digest(plan), hash);
  Plan other = plan;
  other.settings.run.seed = 2;
  EXPECT_NE(plan_digest(other), hash);
}

}  // namespace
}  // namespace fem::ir::testing
