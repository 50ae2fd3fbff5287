#include "passes/manager.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.hpp"
#include "orders.hpp"

namespace fem {
namespace {

using passes::OptionInfo;
using passes::OptionType;
using passes::PassInfo;
using passes::PassOptions;
using passes::Pipeline;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool leave_alone(ir::Plan&, const PassOptions&, ir::DiagnosticSink&) { return true; }
bool forget_level(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  plan.level = ir::Level::Stage;
  return true;
}
bool give_up(ir::Plan&, const PassOptions&, ir::DiagnosticSink& sink) {
  sink.error({}, "no room for stage 3");
  return false;
}
bool lose_an_action(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  std::erase_if(plan.programs[0].ranks[0].actions,
                [](const ir::Action& a) { return a.kind == ir::ActionKind::SendForward; });
  return true;
}
bool raise_level(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  plan.level = ir::Level::Unit;
  return true;
}

constexpr ir::Level kComm = ir::Level::Communication;
constexpr OptionInfo kOptions[] = {
    {"mode", OptionType::Text, "none", "none|selective|full", "what to run again"},
    {"distance", OptionType::Int, "1", "0..8", "how far ahead"},
    {"floor", OptionType::Int, "4", "2..", "no fewer"},
    {"strict", OptionType::Bool, "false", "", "refuse more"},
    {"file", OptionType::Text, "", "", "any text"},
};
constexpr std::string_view kCommunication[] = {"communication"}, kTune[] = {"tune"};

// The real table's passes, and passes that exist to go wrong.
std::vector<PassInfo> table() {
  std::vector<PassInfo> rows(passes::pass_table().begin(), passes::pass_table().end());
  rows.push_back({"tune", kComm, kComm, {}, {}, true, kOptions, "", leave_alone});
  rows.push_back({"after_tune", kComm, kComm, kTune, {}, true, {}, "", leave_alone});
  rows.push_back({"alone", kComm, kComm, kCommunication, kTune, false, {}, "", leave_alone});
  rows.push_back({"forget_level", kComm, kComm, {}, {}, false, {}, "", forget_level});
  rows.push_back({"give_up", kComm, kComm, {}, {}, false, {}, "", give_up});
  rows.push_back({"lose_an_action", kComm, kComm, {}, {}, false, {}, "", lose_an_action});
  rows.push_back({"raise_level", kComm, ir::Level::Unit, {}, {}, false, {}, "", raise_level});
  return rows;
}

class Manager : public ::testing::Test {
 protected:
  std::optional<Pipeline> parse(const std::string& text) {
    return passes::parse_pipeline(ir::SourceText("pipeline", text), sink, rows);
  }
  // The one error of a text that does not parse.
  std::string error(const std::string& text) {
    sink.clear();
    EXPECT_FALSE(parse(text)) << text;
    EXPECT_EQ(sink.errors(), 1) << sink.text();
    return sink.text();
  }
  bool run(const std::string& text, ir::Plan& plan, const passes::RunOptions& options = {}) {
    auto pipeline = parse(text);
    EXPECT_TRUE(pipeline) << sink.text();
    return pipeline && passes::run_pipeline(*pipeline, plan, sink, options);
  }
  static ir::Plan plan() { return test::make_plan(test::Placement::Loop, 2, 1, 4, test::one_f_one_b(2, 4)); }

  std::vector<PassInfo> rows = table();
  ir::DiagnosticSink sink;
};

TEST_F(Manager, ReadsPassesWithOptions) {
  const auto pipeline = parse(" communication ,\n tune { mode = full , distance=3, strict=true},after_tune");
  ASSERT_TRUE(pipeline) << sink.text();
  ASSERT_EQ(pipeline->calls.size(), 3u);
  const PassOptions& tune = pipeline->calls[1].options;
  EXPECT_EQ(tune.text("mode"), "full");
  EXPECT_EQ(tune.integer("distance"), 3);
  EXPECT_EQ(tune.integer("floor"), 4);  // the default
  EXPECT_TRUE(tune.boolean("strict"));
  EXPECT_EQ(pipeline->calls[1].where.line, 2);
  EXPECT_EQ(pipeline->calls[1].where.column, 2);
  EXPECT_EQ(passes::pipeline_text(*pipeline), "communication,tune{mode=full,distance=3,strict=true},after_tune");
}

TEST_F(Manager, TextReadsBack) {
  for (const char* text :
       {"", "communication", "communication,tune{mode=selective,file=a/b.txt}", "tune,tune{distance=0}"}) {
    const auto pipeline = parse(text);
    ASSERT_TRUE(pipeline) << text << sink.text();
    EXPECT_EQ(passes::pipeline_text(*pipeline), text);
  }
}

TEST_F(Manager, UnknownPassNamesTheNearest) {
  const std::string text = error("tune,comunication");
  EXPECT_THAT(text, HasSubstr("pipeline:1:6: error: unknown pass 'comunication', did you mean 'communication'?"));
  EXPECT_THAT(text, HasSubstr("\n  tune,comunication\n       ^\n"));
  EXPECT_THAT(error("tune{mode=full},xyzzy{a=1}"), HasSubstr("1:17: error: unknown pass 'xyzzy'\n"));
}

TEST_F(Manager, UnknownOptionNamesTheNearest) {
  EXPECT_THAT(error("tune{distanse=2}"),
              HasSubstr("1:6: error: pass 'tune' has no option 'distanse', did you mean 'distance'?"));
  EXPECT_THAT(error("communication{a=1}"),
              HasSubstr("1:15: error: pass 'communication' has no option 'a'; it takes none"));
  EXPECT_THAT(error("tune{mode=full,mode=none}"), HasSubstr("1:16: error: option 'mode' is given twice"));
}

TEST_F(Manager, WrongValues) {
  EXPECT_THAT(error("tune{mode=fall}"),
              HasSubstr("1:11: error: option 'mode': 'fall' is not one of none|selective|full, did you mean 'full'?"));
  EXPECT_THAT(error("tune{distance=x}"), HasSubstr("1:15: error: option 'distance': 'x' is not an integer"));
  EXPECT_THAT(error("tune{distance=9}"), HasSubstr("option 'distance': 9 is more than 8"));
  EXPECT_THAT(error("tune{distance=-1}"), HasSubstr("option 'distance': -1 is less than 0"));
  EXPECT_THAT(error("tune{floor=1}"), HasSubstr("option 'floor': 1 is less than 2"));
  EXPECT_THAT(error("tune{strict=yes}"), HasSubstr("option 'strict': 'yes' is neither true nor false"));
  EXPECT_THAT(error("tune{distance=99999999999999999999}"), HasSubstr("is not an integer"));
}

TEST_F(Manager, Syntax) {
  EXPECT_THAT(error("communication,"), HasSubstr("1:15: error: expected the name of a pass"));
  EXPECT_THAT(error("communication tune"), HasSubstr("1:15: error: expected ',' or the end of the pipeline"));
  EXPECT_THAT(error("tune{mode}"), HasSubstr("1:10: error: expected '=' after option 'mode'"));
  EXPECT_THAT(error("tune{mode=full"), HasSubstr("1:15: error: expected ',' or '}' after an option"));
  EXPECT_THAT(error("tune{,}"), HasSubstr("1:6: error: expected the name of an option"));
}

TEST_F(Manager, EveryFaultIsReported) {
  EXPECT_FALSE(parse("tnue,tune{mode=x,distanc=2}"));
  EXPECT_EQ(sink.errors(), 3) << sink.text();
}

TEST_F(Manager, LevelsNeedsAndConflicts) {
  EXPECT_THAT(
      error("communication,communication"),
      HasSubstr(
          "1:15: error: pass 'communication' takes a plan at stage level, but 'communication' before it leaves it at "
          "communication level"));
  EXPECT_THAT(error("communication,after_tune"), HasSubstr("1:15: error: pass 'after_tune' needs 'tune' before it"));
  EXPECT_THAT(error("communication,after_tune,tune"), HasSubstr("needs 'tune' before it"));
  EXPECT_THAT(error("communication,tune,alone"),
              HasSubstr("1:20: error: pass 'alone' cannot run together with 'tune'"));
  EXPECT_THAT(error("communication,alone,tune"),
              HasSubstr("1:21: error: pass 'tune' cannot run together with 'alone'"));
}

TEST_F(Manager, TheTableIsSound) {
  for (const PassInfo& pass : passes::pass_table()) {
    EXPECT_FALSE(pass.doc.empty()) << pass.name;
    EXPECT_TRUE(pass.run) << pass.name;
    for (std::string_view other : pass.needs)
      EXPECT_TRUE(std::ranges::any_of(passes::pass_table(), [&](const PassInfo& p) { return p.name == other; }))
          << other;
    for (std::string_view other : pass.conflicts)
      EXPECT_TRUE(std::ranges::any_of(passes::pass_table(), [&](const PassInfo& p) { return p.name == other; }))
          << other;
  }
  EXPECT_TRUE(passes::parse_pipeline(ir::SourceText("default", passes::default_pipeline()), sink))
      << sink.text();
}

TEST_F(Manager, RunsTimesAndShows) {
  ir::Plan p = plan();
  std::vector<std::string> seen;
  std::vector<passes::PassTiming> timings;
  passes::RunOptions options;
  options.after = [&](std::string_view pass, const ir::Plan& now) {
    seen.push_back(std::string(pass) + " " + std::string(ir::name(now.level)));
  };
  options.timings = &timings;
  ASSERT_TRUE(run("communication,tune", p, options)) << sink.text();
  EXPECT_EQ(p.level, ir::Level::Communication);
  EXPECT_THAT(seen, ElementsAre("communication communication", "tune communication"));
  ASSERT_EQ(timings.size(), 2u);
  EXPECT_EQ(timings[0].pass, "communication");
  EXPECT_GT(timings[0].run.count(), 0);
  EXPECT_GT(timings[0].verify.count(), 0);
}

TEST_F(Manager, DisablesOptimisationsByName) {
  ir::Plan p = plan();
  std::vector<passes::PassTiming> timings;
  passes::RunOptions options;
  options.timings = &timings;
  options.disabled = {"tune"};
  ASSERT_TRUE(run("communication,tune", p, options)) << sink.text();
  EXPECT_EQ(timings.size(), 1u);

  p = plan();
  EXPECT_FALSE(run("communication,tune,after_tune", p, options));
  EXPECT_THAT(sink.text(), HasSubstr("pass 'after_tune' needs 'tune', which is disabled"));
  sink.clear();
  options.disabled = {"communication"};
  EXPECT_FALSE(run("communication", p, options));
  EXPECT_THAT(sink.text(), HasSubstr("pass 'communication' is no optimisation and cannot be disabled"));
  sink.clear();
  options.disabled = {"tnue"};
  EXPECT_FALSE(run("communication,tune", p, options));
  EXPECT_THAT(sink.text(), HasSubstr("no pass 'tnue' to disable, did you mean 'tune'?"));
}

TEST_F(Manager, LevelOfThePlan) {
  ir::Plan p = plan();
  EXPECT_FALSE(run("tune", p));
  EXPECT_THAT(
      sink.text(),
      HasSubstr("pipeline:1:1: error: pass 'tune' takes a plan at communication level, this one is at stage level"));
}

TEST_F(Manager, NamesTheFailingPass) {
  ir::Plan p = plan();
  EXPECT_FALSE(run("communication,give_up", p));
  EXPECT_THAT(sink.text(), HasSubstr("no room for stage 3"));
  EXPECT_THAT(sink.text(), HasSubstr("pass 'give_up' failed"));
  sink.clear();
  p = plan();
  EXPECT_FALSE(run("communication,forget_level", p));
  EXPECT_THAT(sink.text(), HasSubstr("pass 'forget_level' left the plan at stage level, its row says communication"));
}

TEST_F(Manager, VerifiesBeforeAndAfterEachPass) {
  ir::Plan p = plan();
  EXPECT_FALSE(run("communication,lose_an_action", p));
  EXPECT_THAT(sink.text(), HasSubstr("the plan does not verify after pass 'lose_an_action'"));
  sink.clear();
  p = plan();
  p.programs[0].ranks[0].actions.erase(p.programs[0].ranks[0].actions.begin() + 1);
  EXPECT_FALSE(run("communication", p));
  EXPECT_THAT(sink.text(), HasSubstr("the plan does not verify before the first pass"));
}

}  // namespace
}  // namespace fem
