// What femc plan prints about passes, and the reproducer that a failing one leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/watched_pipeline.hpp"
#include "ir/text.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using passes::PassInfo;
using passes::PassOptions;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

bool give_up(ir::Plan&, const PassOptions&, ir::DiagnosticSink& sink) {
  sink.error({}, "no room for stage 3");
  return false;
}
bool leave_alone(ir::Plan&, const PassOptions&, ir::DiagnosticSink&) { return true; }

class PassOptionsTest : public ::testing::Test {
 protected:
  PassOptionsTest() {
    constexpr ir::Level level = ir::Level::Communication;
    rows.assign(passes::pass_table().begin(), passes::pass_table().end());
    rows.push_back({"give_up", level, level, {}, {}, false, {}, "", give_up});
    rows.push_back({"tidy", level, level, {}, {}, true, {}, "", leave_alone});
    arguments.config = folder.write("run.yaml", config_text(4, 2, 4));
    arguments.output = (folder.path() / "run.fem").string();
  }
  Streams streams() { return {out, err}; }

  // The stage-level plan of the configuration, through the pipeline.
  bool run(const std::string& passes) {
    arguments.passes = passes;
    ir::DiagnosticSink sink;
    const auto pipeline = WatchedPipeline::read(arguments, sink, rows);
    const auto configuration = read_configuration(source(config_text(4, 2, 4)), {}, sink);
    auto plan = make_plan(*configuration, schedule("1f1b"), sink);
    const bool ok = pipeline && pipeline->run(*plan, (folder.path() / "r.txt").string(), sink, streams());
    err << sink.text();
    return ok;
  }

  TemporaryFolder folder;
  std::vector<PassInfo> rows;
  PlanArguments arguments;
  std::ostringstream out, err;
};

TEST_F(PassOptionsTest, AFailureIsReplayedWithTheSameErrorAndCode) {
  EXPECT_FALSE(run("communication,tidy,give_up,tidy"));
  EXPECT_THAT(err.str(), HasSubstr("error: no room for stage 3\n"));
  EXPECT_THAT(err.str(), HasSubstr("r.txt: note: holds the failing pass's input and the rest of the pipeline; 'femc "
                                   "replay' runs it"));
  err.str("");
  EXPECT_EQ(replay((folder.path() / "r.txt").string(), streams(), rows), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("error: no room for stage 3\n"));
  EXPECT_EQ(out.str(), "");
  EXPECT_THAT(folder.read("r.txt"), HasSubstr("\nran communication,tidy\nrest give_up,tidy\nfemtotron plan v1\n"));

  for (PassInfo& row : rows)
    if (row.name == "give_up") row.run = leave_alone;  // the fault is mended
  EXPECT_EQ(replay((folder.path() / "r.txt").string(), streams(), rows), kSuccess);
  EXPECT_THAT(out.str(), HasSubstr("r.txt: 'give_up,tidy' runs through: 1 program, 2 pipeline ranks, "));
}

TEST_F(PassOptionsTest, AReproducerThatCannotBeWrittenIsAnErrorToo) {
  arguments.passes = "communication,give_up";
  ir::DiagnosticSink sink;
  const auto pipeline = WatchedPipeline::read(arguments, sink, rows);
  const auto configuration = read_configuration(source(config_text(4, 2, 4)), {}, sink);
  auto plan = make_plan(*configuration, schedule("1f1b"), sink);
  EXPECT_FALSE(pipeline->run(*plan, (folder.path() / "absent/r.txt").string(), sink, streams()));
  EXPECT_THAT(sink.text(), HasSubstr("absent/r.txt: error: cannot write the reproducer: No such file or directory"));
}

TEST_F(PassOptionsTest, ReplayOfAnythingElseIsAnError) {
  EXPECT_EQ(replay_command(folder.write("x.txt", "hello\n"), streams()), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("x.txt:1:1: error: a reproducer begins with the line"));
  err.str("");
  EXPECT_EQ(replay_command((folder.path() / "none.txt").string(), streams()), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("none.txt: error: cannot read: No such file or directory"));
}

TEST_F(PassOptionsTest, PrintsChangesOfPassesThatMadeSome) {
  arguments.print_changed = true;
  ASSERT_TRUE(run("communication,tidy"));
  EXPECT_THAT(err.str(), StartsWith("# changed by communication\n"));
  EXPECT_THAT(err.str(), HasSubstr("SendForward s0 m0 to 1"));
  EXPECT_THAT(err.str(), Not(HasSubstr("tidy")));
}

TEST_F(PassOptionsTest, PrintsThePlanAfterOneOrAll) {
  arguments.print_after = "tidy";
  ASSERT_TRUE(run("communication,tidy"));
  EXPECT_THAT(err.str(), StartsWith("# after tidy\nfemtotron plan v1\n"));
  err.str("");
  arguments.print_after = "all";
  ASSERT_TRUE(run("communication,tidy"));
  EXPECT_THAT(err.str(), StartsWith("# after communication\nfemtotron plan v1\n"));
  EXPECT_THAT(err.str(), HasSubstr("\n# after tidy\n"));
  err.str("");
  arguments.print_after = "tdiy";
  ir::DiagnosticSink sink;
  EXPECT_FALSE(WatchedPipeline::read(arguments, sink, rows));
  EXPECT_THAT(sink.text(), HasSubstr("--print-after: error: 'tdiy' is no pass of this pipeline, did you mean 'tidy'?; "
                                     "its passes: communication, tidy"));
}

TEST_F(PassOptionsTest, TimesPasses) {
  arguments.time_passes = true;
  ASSERT_TRUE(run("communication,tidy"));
  const std::string number = " +[0-9]+\\.[0-9]+", row = number + number + number + " %\n";
  EXPECT_THAT(err.str(), MatchesRegex("pass +run ms +verify ms +share\ncommunication" + row + "tidy" + row +
                                      "total" + number + number + " +100\\.0 %\n"));
}

TEST_F(PassOptionsTest, DisablesOptimisationsAlone) {
  arguments.time_passes = true;
  arguments.disable = {"tidy"};
  ASSERT_TRUE(run("communication,tidy"));
  EXPECT_THAT(err.str(), Not(HasSubstr("tidy")));
  // Through the command: required passes stay.
  arguments = {.config = arguments.config, .output = arguments.output, .set = {}, .passes = {}, .print_after = {}};
  arguments.disable = {"communication"};
  err.str("");
  EXPECT_EQ(plan_command(arguments, folders(), streams()), kDiagnosed);
  EXPECT_EQ(err.str(), "error: pass 'communication' is no optimisation and cannot be disabled\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "femc-reproducer.txt"));  // no pass has failed
}

}  // namespace
}  // namespace fem::compiler::test
