// A failing pass leaves what it was given; running that again fails in the same way.
#include "passes/reproducer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "orders.hpp"

namespace fem {
namespace {

using passes::FailedPass;
using passes::PassInfo;
using passes::PassOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool leave_alone(ir::Plan&, const PassOptions&, ir::DiagnosticSink&) { return true; }
bool swap_clips(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  auto& actions = plan.programs[0].ranks[0].actions;  // two stages: the order of their clips is free
  std::vector<std::size_t> clips;
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (actions[i].kind == ir::ActionKind::ClipGrad) clips.push_back(i);
  std::swap(actions[clips.at(0)], actions[clips.at(1)]);
  return true;
}
bool give_up(ir::Plan&, const PassOptions& options, ir::DiagnosticSink& sink) {
  if (options.integer("limit") > 3) return true;
  sink.error({}, "no room for stage 3");
  return false;
}
bool lose_a_send(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  std::erase_if(plan.programs[0].ranks[0].actions,
                [](const ir::Action& a) { return a.kind == ir::ActionKind::SendForward && a.microbatch == 1; });
  return true;
}

constexpr ir::Level kComm = ir::Level::Communication;
constexpr passes::OptionInfo kLimit[] = {{"limit", passes::OptionType::Int, "1", "0..", "fails up to 3"}};
constexpr std::string_view kSwap[] = {"swap_clips"};

std::vector<PassInfo> table() {
  std::vector<PassInfo> rows(passes::pass_table().begin(), passes::pass_table().end());
  rows.push_back({"swap_clips", kComm, kComm, {}, {}, true, {}, "", swap_clips});
  rows.push_back({"rest", kComm, kComm, {}, {}, true, {}, "", leave_alone});
  rows.push_back({"give_up", kComm, kComm, kSwap, {}, false, kLimit, "", give_up});
  rows.push_back({"lose_a_send", kComm, kComm, {}, {}, false, {}, "", lose_a_send});
  return rows;
}

class Reproducer : public ::testing::Test {
 protected:
  // Runs the pipeline; the text of the reproducer, "" when nothing failed.
  std::string fail(const std::string& pipeline, std::vector<std::string> disabled = {}) {
    sink.clear();
    auto read = passes::parse_pipeline(ir::SourceText("pipeline", pipeline), sink, rows);
    EXPECT_TRUE(read) << sink.text();
    ir::Plan plan = test::make_plan(test::Placement::Loop, 2, 2, 4, test::interleaved(2, 4, 2, 2));
    std::optional<FailedPass> failed;
    passes::RunOptions options;
    options.failed = &failed;
    options.disabled = std::move(disabled);
    const bool ok = passes::run_pipeline(*read, plan, sink, options);
    EXPECT_EQ(ok, !sink.has_errors());
    return failed ? passes::reproducer_text(*failed, sink) : "";
  }
  // Runs the text again; the errors as text without positions.
  std::vector<std::string> replay(const std::string& text) {
    ir::DiagnosticSink again;
    auto reproducer = passes::parse_reproducer(ir::SourceText("r.txt", text), again, rows);
    EXPECT_TRUE(reproducer) << again.text();
    if (reproducer) passes::run_pipeline(reproducer->rest, reproducer->input, again);
    return errors(again);
  }
  static std::vector<std::string> errors(const ir::DiagnosticSink& from) {
    std::vector<std::string> out;
    for (const ir::Diagnostic& d : from.all())
      if (d.severity == ir::Severity::Error) out.push_back(d.message + d.code);
    return out;
  }
  std::string refused(const std::string& text) {
    ir::DiagnosticSink errors;
    EXPECT_FALSE(passes::parse_reproducer(ir::SourceText("r.txt", text), errors, rows));
    return errors.text();
  }

  std::vector<PassInfo> rows = table();
  ir::DiagnosticSink sink;
};

TEST_F(Reproducer, HoldsTheInputOfTheFailingPassAndTheRest) {
  const std::string text = fail("communication,swap_clips,rest,give_up{limit=2},rest");
  EXPECT_THAT(text, HasSubstr("femtotron reproducer v1\n# error: no room for stage 3\n"
                              "ran communication,swap_clips,rest\nrest give_up{limit=2},rest\nfemtotron plan v1\n"));
  EXPECT_THAT(text, HasSubstr("ClipGrad s2\n  ClipGrad s0\n"));  // as swap_clips left it
  EXPECT_THAT(replay(text), ElementsAre("no room for stage 3"));
}

TEST_F(Reproducer, AFaultThatTheVerifierFindsFailsAgain) {
  const std::string text = fail("communication,rest,lose_a_send");
  EXPECT_THAT(text, HasSubstr("\nran communication,rest\nrest lose_a_send\n"));
  EXPECT_THAT(errors(sink), ::testing::Contains(HasSubstr("stage 0 has no SendForward of microbatch 1V14")));
  EXPECT_EQ(replay(text), errors(sink));
}

TEST_F(Reproducer, SucceedsWhenTheFailureIsGone) {
  std::string text = fail("communication,swap_clips,give_up");
  text.replace(text.find("rest give_up"), 12, "rest give_up{limit=4}");
  EXPECT_THAT(replay(text), ElementsAre());
}

TEST_F(Reproducer, TheFirstPassMayFail) {
  // Stage level: rank 0 wants a gradient before it has sent what it depends on. Only a plan that nobody verified can.
  FailedPass failed{"", "communication",
                    test::make_plan(test::Placement::Loop, 2, 1, 1, {test::read_order("0B0 0F0"), {}})};
  const std::string text = passes::reproducer_text(failed, sink);
  EXPECT_THAT(text, HasSubstr("\nran \nrest communication\n"));
  EXPECT_FALSE(replay(text).empty());
}

TEST_F(Reproducer, DisabledPassesAreNotInIt) {
  EXPECT_THAT(fail("communication,rest,swap_clips,give_up,rest", {"rest"}),
              HasSubstr("\nran communication,swap_clips\nrest give_up\n"));
}

TEST_F(Reproducer, NothingIsLeftWhenNothingFails) {
  EXPECT_EQ(fail("communication,swap_clips,give_up{limit=9}"), "");
  EXPECT_EQ(fail("swap_clips"), "");  // the user's pipeline does not fit the plan: no pass has failed
  EXPECT_TRUE(sink.has_errors());
}

TEST_F(Reproducer, ErrorsPointIntoTheFile) {
  const std::string plan = "femtotron plan v1\nlevel stage\nstaeg 0\n";
  EXPECT_THAT(refused("femtotron plan v1\n"),
              HasSubstr("r.txt:1:1: error: a reproducer begins with the line 'femtotron reproducer v1'"));
  EXPECT_THAT(refused("femtotron reproducer v1\nrest rest\n"),
              HasSubstr("r.txt:2:1: error: expected a line 'ran PIPELINE'"));
  EXPECT_THAT(refused("femtotron reproducer v1\nran communication\n" + plan),
              HasSubstr("r.txt:3:1: error: expected a line 'rest PIPELINE'"));
  EXPECT_THAT(refused("femtotron reproducer v1\nran\nrest rest\n"), HasSubstr("the file ends before the plan"));
  EXPECT_THAT(refused("femtotron reproducer v1\n\nran\nrest rset\n" + plan),
              HasSubstr("r.txt:4:6: error: unknown pass 'rset', did you mean 'rest'?"));
  EXPECT_THAT(refused("femtotron reproducer v1\n\nran\nrest communication\n" + plan), HasSubstr("r.txt:7:1: error:"));
  EXPECT_THAT(refused(""), HasSubstr("the file ends before the plan"));
}

TEST_F(Reproducer, ChangesAreReportedOnlyWhereThereAreAny) {
  auto read = passes::parse_pipeline(ir::SourceText("pipeline", "communication,rest,swap_clips"), sink, rows);
  ir::Plan plan = test::make_plan(test::Placement::Loop, 2, 2, 4, test::interleaved(2, 4, 2, 2));
  std::vector<std::string> changed;
  passes::RunOptions options;
  options.changed = [&](std::string_view pass, const ir::Plan& before, const ir::Plan& now) {
    changed.emplace_back(pass);
    EXPECT_NE(before, now);
  };
  ASSERT_TRUE(passes::run_pipeline(*read, plan, sink, options)) << sink.text();
  EXPECT_THAT(changed, ElementsAre("communication", "swap_clips"));
}

TEST_F(Reproducer, AFailingPassIsTimed) {
  auto read = passes::parse_pipeline(ir::SourceText("pipeline", "communication,swap_clips,give_up"), sink, rows);
  ir::Plan plan = test::make_plan(test::Placement::Loop, 2, 2, 4, test::interleaved(2, 4, 2, 2));
  std::vector<passes::PassTiming> timings;
  passes::RunOptions options;
  options.timings = &timings;
  EXPECT_FALSE(passes::run_pipeline(*read, plan, sink, options));
  ASSERT_EQ(timings.size(), 3u);
  EXPECT_EQ(timings[2].pass, "give_up");
}

}  // namespace
}  // namespace fem
