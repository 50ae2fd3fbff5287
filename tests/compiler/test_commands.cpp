// The commands as library functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/command_support.hpp"
#include "compiler/reference_pages.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using testing::HasSubstr;

class Commands : public testing::Test {
 protected:
  Streams streams() { return {out, err}; }
  std::string make_plan_file(std::vector<std::string> set = {}) {
    PlanArguments arguments;
    arguments.config = folder.write("run.yaml", config_text(8, 4, 8));
    arguments.output = (folder.path() / "run.fem").string();
    arguments.set = std::move(set);
    EXPECT_EQ(plan_command(arguments, folders(), streams()), kSuccess) << err.str();
    return *arguments.output;
  }

  TemporaryFolder folder;
  std::ostringstream out, err;
};

TEST_F(Commands, PlanPrintsWhatItWouldWrite) {
  const std::string file = make_plan_file({"data.eval=held"});
  // Training: on each rank 16 passes and 6 actions of the step; 60 sends and receives, counted in the published
  // sequences. Evaluation: on each rank 8 forwards and ReduceLoss; 48 sends and receives over three boundaries.
  EXPECT_EQ(out.str(), file + ": 2 programs, 4 pipeline ranks, 232 actions\n");
  out.str("");
  PlanArguments arguments{.config = (folder.path() / "run.yaml").string(),
                          .output = {},
                          .set = {"data.eval=held"},
                          .passes = {},
                          .print_after = {}};
  EXPECT_EQ(plan_command(arguments, folders(), streams()), kSuccess);
  EXPECT_EQ(out.str(), folder.read("run.fem"));
  EXPECT_EQ(err.str(), "");
}

TEST_F(Commands, CheckCounts) {
  const std::string file = make_plan_file();
  out.str("");
  EXPECT_EQ(check_command(file, streams()), kSuccess);
  // By hand, per rank: 8 forwards and 8 backwards, ZeroGrad, ReduceLoss, AllReduce, GradNorm, ClipGrad, OptimizerStep
  // are 22; sends and receives beside them are counted in the plan's text.
  std::size_t lines = 0;
  std::istringstream text(folder.read("run.fem"));
  for (std::string line; std::getline(text, line);) lines += line.starts_with("  ");
  EXPECT_GE(lines, 88u);
  EXPECT_EQ(out.str(), file + ": ok, 1 program, 4 pipeline ranks, " + std::to_string(lines) + " actions\n");
}

TEST_F(Commands, CheckPointsAtTheLineOfAPlanThatDoesNotVerify) {
  make_plan_file();
  std::string text = folder.read("run.fem");
  const std::size_t begin = text.find("  Backward s0 m0\n");
  ASSERT_NE(begin, std::string::npos);
  text.erase(begin, text.find('\n', begin) + 1 - begin);
  const std::string file = folder.write("bad.fem", text);
  out.str("");
  EXPECT_EQ(check_command(file, streams()), kDiagnosed);
  EXPECT_EQ(out.str(), "");
  EXPECT_THAT(err.str(), HasSubstr(file + ":"));
  EXPECT_THAT(err.str(), HasSubstr("[V13]"));
}

TEST_F(Commands, TimelineNamesBothBubbles) {
  const std::string file = make_plan_file();
  out.str("");
  EXPECT_EQ(timeline_command({.plan = file}, streams()), kSuccess);
  // 1F1B at p=4, m=8, F=1, B=2: (p - 1)(F + B) = 9 of m(F + B) = 24.
  EXPECT_THAT(out.str(), HasSubstr("ideal       24"));
  EXPECT_THAT(out.str(), HasSubstr("makespan    33, bubble 9: 37.50% over ideal time, 27.27% over total time"));
  EXPECT_THAT(out.str(), HasSubstr("stage span  33, bubble 9: 37.50% over ideal time, 27.27% over total time"));
  EXPECT_THAT(out.str(), HasSubstr("rank 0      busy 24, waiting 9, at most 4 in flight"));
  EXPECT_THAT(out.str(), HasSubstr("rank 3      busy 24, waiting 0, at most 1 in flight"));
}

TEST_F(Commands, OutputIsReplacedAsAWholeOrNotAtAll) {
  make_plan_file();
  const std::string before = folder.read("run.fem");
  PlanArguments arguments{.config = (folder.path() / "run.yaml").string(),
                          .output = (folder.path() / "run.fem").string(),
                          .set = {"batch.micro=3"},
                          .passes = {},
                          .print_after = {}};
  EXPECT_EQ(plan_command(arguments, folders(), streams()), kDiagnosed);
  EXPECT_EQ(folder.read("run.fem"), before);
  arguments.set = {"batch.global=4"};
  EXPECT_EQ(plan_command(arguments, folders(), streams()), kSuccess);
  EXPECT_NE(folder.read("run.fem"), before);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("run.yaml", "run.fem"));  // no temporary file stays
}

TEST_F(Commands, UnwritableOutputIsARuntimeFailure) {
  PlanArguments arguments{.config = folder.write("run.yaml", config_text(8, 4, 8)),
                          .output = "/dev/full",
                          .set = {},
                          .passes = {},
                          .print_after = {}};
  EXPECT_EQ(plan_command(arguments, folders(), streams()), kRuntime);
  EXPECT_EQ(err.str(), "/dev/full: error: cannot write: No space left on device\n");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));  // a device is written to, not replaced
  err.str("");
  out.setstate(std::ios::badbit);
  EXPECT_EQ(list_command("actions", folders(), streams()), kRuntime);
  EXPECT_EQ(err.str(), "error: cannot write to the standard output\n");
}

TEST_F(Commands, ListNamesEveryRow) {
  EXPECT_EQ(list_command("schedules", folders(), streams()), kSuccess);
  for (const std::string& name : schedule_names(folders())) EXPECT_THAT("\n" + out.str(), HasSubstr("\n" + name + " "));
}

TEST_F(Commands, ExplainKnowsEveryInvariant) {
  for (const ir::InvariantInfo& row : ir::invariants()) {
    out.str("");
    EXPECT_EQ(explain_command(std::string(row.code), streams()), kSuccess);
    EXPECT_THAT(out.str(), HasSubstr(std::string(row.explanation)));
  }
  EXPECT_EQ(explain_command("V007", streams()), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("error: there is no invariant 'V007', did you mean 'V07'?; valid: V01, "));
}

// The pages under docs/ are those that `femc docs docs` writes today.
TEST_F(Commands, ReferencePagesAreCurrent) {
  ir::DiagnosticSink sink;
  const auto pages = reference_pages(folders(), sink);
  ASSERT_TRUE(pages) << sink.text();
  for (const ReferencePage& page : *pages) {
    std::string reason;
    const auto text = read_text_file(std::filesystem::path(FEM_SOURCE) / "docs" / page.file, reason);
    EXPECT_EQ(text, page.text) << "run: build/release/bin/femc docs docs";
  }
}

TEST_F(Commands, DocsWritesThePages) {
  EXPECT_EQ(docs_command(folder.path().string(), folders(), streams()), kSuccess) << err.str();
  ir::DiagnosticSink sink;
  const auto pages = reference_pages(folders(), sink);
  ASSERT_TRUE(pages) << sink.text();
  for (const ReferencePage& page : *pages) EXPECT_EQ(folder.read(page.file), page.text);
  EXPECT_EQ(docs_command((folder.path() / "absent").string(), folders(), streams()), kRuntime);
}

}  // namespace
}  // namespace fem::compiler::test
