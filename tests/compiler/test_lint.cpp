// femc lint: the files that ship have no fault, and each kind of fault is found and told once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace fem::compiler::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kClean = "no fault found";
constexpr const char* kPhases = "phases:\n  - {repeat: m * v, do: [F]}\n  - {repeat: m * v, do: [B]}\n";

class Lint : public testing::Test {
 protected:
  // Of a file whose header the test does not care about; `rest` begins in line 6.
  int lint(const std::string& rest, LintGrid grid = {.p = "1..3", .m = "1,p,2*p+1", .v = ""}) {
    const std::string text = "name: x\nreference: this test\nplacement: loop\nchunks: 1\nbackward: whole\n" + rest;
    return lint_text(text, std::move(grid));
  }
  int lint_text(const std::string& text, LintGrid grid) {
    out.str("");
    err.str("");
    file = folder.write("x.yaml", text);
    return lint_command({{file}, std::move(grid)}, {}, {out, err});
  }

  TemporaryFolder folder;
  std::string file;
  std::ostringstream out, err;
};

// Over the whole grid of `femc lint` without options.
TEST_F(Lint, ShippedSchedulesHaveNoFault) {
  const std::vector<std::string> names = schedule_names(folders());
  EXPECT_EQ(lint_command({names, {.seconds = 1e6}}, folders(), {out, err}), kSuccess);
  EXPECT_EQ(err.str(), "");
  const std::string text = out.str();
  std::size_t clean = 0;
  for (std::size_t at = text.find(kClean); at != std::string::npos; at = text.find(kClean, at + 1)) ++clean;
  EXPECT_EQ(clean, names.size());
  EXPECT_THAT(text, Not(HasSubstr("not tried")));
}

TEST_F(Lint, CountsWhatItTried) {
  EXPECT_EQ(lint("require:\n  - {that: m >= p, message: \"m={m} is less than {p}\"}\n" + std::string(kPhases) +
                 "check:\n  - {what: peak_in_flight, equals: m}\n"),
            kSuccess)
      << err.str();
  // p=1: m = 1, 3; p=2: m = 1 (refused), 2, 5; p=3: m = 1 (refused), 3, 7. Each under three sets of costs on p ranks.
  EXPECT_EQ(out.str(), file +
                           ": schedule 'x', placement loop, 1 chunk, backward whole\n"
                           "    p  planned  refused  failed  comparisons\n"
                           "    1        2        0       0            6\n"
                           "    2        2        1       0           12\n"
                           "    3        2        1       0           18\n"
                           "  all        6        2       0           36\n"
                           "line 7 refuses 2 points, first p=2 m=1 v=1: m=1 is less than 2\n"
                           "no fault found\n");
}

TEST_F(Lint, EveryErrorOfTheFile) {
  EXPECT_EQ(lint("check:\n  - {what: peak, equals: m}\n  - {what: makespan, equals: q}\n" + std::string(kPhases)),
            kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr(file + ":7:12: error: "));
  EXPECT_THAT(err.str(), HasSubstr(file + ":8:30: error: "));
  EXPECT_EQ(lint_text("name: x\nplacement: loop\nchunks: 1\nbackward: whole\n" + std::string(kPhases), {}), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("x.yaml:1:1: error: a schedule needs 'reference'"));
}

// The same sentence at four points is one fault.
TEST_F(Lint, AClosedFormThatDiffers) {
  EXPECT_EQ(lint(std::string(kPhases) + "check:\n  - {what: peak_in_flight, equals: m - r}\n"), kDiagnosed);
  EXPECT_EQ(err.str(), file +
                           ":10:36: error: peak_in_flight of rank 1 is 1, not 0 (p=2, m=1, v=1, F=1, I=1, W=1)\n"
                           "    - {what: peak_in_flight, equals: m - r}\n"
                           "                                     ^\n" +
                           file +
                           ":10:36: note: at p=2 m=1 v=1, p=2 m=2 v=1, p=2 m=5 v=1, p=3 m=1 v=1, p=3 m=3 v=1, p=3 m=7 "
                           "v=1\n");
  EXPECT_THAT(out.str(), HasSubstr("\n    2        0        0       3 "));
  EXPECT_THAT(out.str(), HasSubstr("\n1 fault\n"));
}

TEST_F(Lint, AnOrderThatEndsEarly) {
  EXPECT_EQ(lint("phases:\n  - {repeat: m, do: [F]}\n  - {repeat: \"min(m, 3)\", do: [B]}\n"), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("error: rank 0: the phases end after 3 of 5 backwards (p=2, m=5, v=1)\n"));
  EXPECT_THAT(err.str(), HasSubstr("note: at p=2 m=5 v=1, p=3 m=7 v=1\n"));
}

// Each rank alone is in order; together they wait for each other.
TEST_F(Lint, OrdersThatContradictEachOther) {
  EXPECT_EQ(lint("table:\n  - 0F0 0B0 0F1 0B1\n  - 1F0 1F1 1B0 1B1\n", {.p = "2", .m = "2", .v = ""}), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr(file + ":7:3: error: "));
  EXPECT_THAT(err.str(), HasSubstr("deadlock: rank 0 waits in Backward s0 m0"));
  EXPECT_THAT(err.str(), HasSubstr("[V23]"));
}

TEST_F(Lint, AConditionThatNeverHolds) {
  EXPECT_EQ(lint("require:\n  - {that: p > 9, message: more}\n" + std::string(kPhases)), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr(file + ":7:12: error: this condition holds nowhere on the grid (8 points)\n"));
  EXPECT_EQ(lint("require:\n  - {that: p > 2, message: more}\n  - {that: m < p, message: less}\n" +
                     std::string(kPhases),
                 {.p = "1..3", .m = "p", .v = ""}),
            kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr(file + ":8:12: error: this condition holds nowhere on the grid (1 point)\n"));
}

TEST_F(Lint, AClosedFormThatIsNeverCompared) {
  EXPECT_EQ(lint(std::string(kPhases) + "check:\n  - {what: peak_in_flight, equals: m}\n"
                                        "  - {what: makespan, equals: 0, when: F == 7}\n"),
            kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr(file + ":11:39: error: this closed form of makespan was compared nowhere on the "
                                          "grid: its condition never holds\n"));
}

TEST_F(Lint, NamesThatNothingUses) {
  EXPECT_EQ(lint("parameters: {used: 1, spare: 2, told: 3, base: 4, derived: base}\n"
                 "let: {idle: r, busy: derived}\n"
                 "require:\n  - {that: p > 0, message: \"spare words, {told}\"}\n"
                 "phases:\n  - {repeat: m * used, do: [F]}\n  - {repeat: m + 0 * busy, do: [B]}\n"),
            kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr(file + ":6:23: error: parameter 'spare' is never used\n"));
  EXPECT_THAT(err.str(), HasSubstr(file + ":7:7: error: name 'idle' is never used\n"));
  EXPECT_THAT(out.str(), HasSubstr("\n2 faults\n"));
}

TEST_F(Lint, AReferenceWithoutText) {
  EXPECT_EQ(lint_text("name: x\nreference: \" \"\nplacement: loop\nchunks: 1\nbackward: whole\n" + std::string(kPhases),
                      {.p = "1", .m = "1", .v = ""}),
            kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr(file + ":2:12: error: the reference is empty\n"));
}

TEST_F(Lint, SaysWhatItDidNotTry) {
  EXPECT_EQ(lint(kPhases, {.p = "1..2", .m = "1,2", .v = "", .seconds = -1}), kSuccess) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("not tried, time was up: p=1 m=1 v=1, p=1 m=2 v=1, p=2 m=1 v=1, p=2 m=2 v=1\n"));
}

TEST_F(Lint, AGridThatCannotBe) {
  EXPECT_EQ(lint(kPhases, {.p = "1..x", .m = "1", .v = ""}), kDiagnosed);
  EXPECT_EQ(err.str(), "--p: error: 'x' is not an integer from 1 to 1024\n");
  EXPECT_EQ(lint(kPhases, {.p = "1", .m = "1", .v = "2"}), kDiagnosed);
  EXPECT_EQ(err.str(), "--v: error: '2' is not an integer from 1 to 1\n");
  EXPECT_EQ(lint(kPhases, {.p = "1..2", .m = "1,p - 1", .v = ""}), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("--m:1:3: error: 'p - 1' is 0 at p=1 v=1: at least one microbatch is needed\n"));
  EXPECT_EQ(lint(kPhases, {.p = "1", .m = "1,q", .v = ""}), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("--m:1:3: error: "));
}

// An expression may have commas of its own.
TEST_F(Lint, MicrobatchesAreExpressions) {
  EXPECT_EQ(lint(kPhases, {.p = "2..3", .m = "max(p, 3),4*v", .v = ""}), kSuccess) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("\n    2        2        0       0            0\n    3        2 "));
}

}  // namespace
}  // namespace fem::compiler::test
