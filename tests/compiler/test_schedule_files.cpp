// Schedule files: what is wrong with one is said with its position, and a new file needs no code.
#include <gtest/gtest.h>

#include "compiler/schedule_check.hpp"
#include "ir/verify.hpp"
#include "passes/manager.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

// A file with one part replaced: lines 1 to 5 are the header.
std::string file_with(const std::string& rest, const std::string& chunks = "1", const std::string& backward = "whole") {
  return "name: x\nreference: none\nplacement: loop\nchunks: " + chunks + "\nbackward: " + backward + "\n" + rest;
}

std::string reading_errors(const std::string& text) {
  ir::DiagnosticSink sink;
  const auto schedule = read_schedule(source(text, "x.yaml"), sink);
  EXPECT_EQ(schedule.has_value(), sink.text().empty());
  return sink.text();
}

std::string order_errors(const std::string& text, int p, int m, int v = 1) {
  ir::DiagnosticSink sink;
  const auto schedule = read_schedule(source(text, "x.yaml"), sink);
  if (schedule) generate_order(*schedule, sizes(*schedule, p, m, v), sink);
  return sink.text();
}

struct Fault {
  const char* title;
  std::string text;
  const char* errors;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.title; }

const std::string kPhases = "phases:\n  - {repeat: m, do: [F]}\n  - {repeat: m, do: [B]}\n";

class ReadingFaults : public testing::TestWithParam<Fault> {};

TEST_P(ReadingFaults, AreNamedWithPosition) { EXPECT_EQ(reading_errors(GetParam().text), GetParam().errors); }

INSTANTIATE_TEST_SUITE_P(
    Schedules, ReadingFaults,
    testing::ValuesIn(std::vector<Fault>{
        {"unknown key", file_with("fases: []\n" + kPhases),
         "x.yaml:6:1: error: unknown key 'fases' in a schedule, did you mean 'phases'?\n  fases: []\n  ^\n"},
        {"missing header", "name: x\n" + kPhases,
         "x.yaml:1:1: error: a schedule needs 'reference'\n  name: x\n  ^\n"
         "x.yaml:1:1: error: a schedule needs 'placement'\n  name: x\n  ^\n"
         "x.yaml:1:1: error: a schedule needs 'backward'\n  name: x\n  ^\n"
         "x.yaml:1:1: error: a schedule needs 'chunks'\n  name: x\n  ^\n"},
        {"wrong placement", "name: x\nreference: none\nplacement: lop\nchunks: 1\nbackward: whole\n" + kPhases,
         "x.yaml:3:12: error: placement is 'lop', not one of loop, v, bidirectional, did you mean 'loop'?\n"
         "  placement: lop\n             ^\n"},
        {"chunks", file_with(kPhases, "some"),
         "x.yaml:4:9: error: chunks is 'some', not an integer from 1 to 64\n  chunks: some\n          ^\n"},
        {"chunk range", file_with(kPhases, "{default: 1, min: 2}"),
         "x.yaml:4:9: error: default 1 does not lie between min 2 and max 64\n  chunks: {default: 1, min: 2}\n"
         "          ^\n"},
        {"v placement", "name: x\nreference: none\nplacement: v\nchunks: 1\nbackward: whole\n" + kPhases,
         "x.yaml:4:9: error: placement v takes chunks: 2\n  chunks: 1\n          ^\n"},
        {"no order", file_with(""),
         "x.yaml:1:1: error: a schedule needs an order: one of phases, priority, pattern, search, table\n"
         "  name: x\n  ^\n"},
        {"two orders", file_with(kPhases + "table: []\n"),
         "x.yaml:9:8: error: a schedule has one order, but both 'phases' and 'table' are here\n  table: []\n"
         "         ^\n"},
        {"unknown operation", file_with("phases:\n  - {repeat: m, do: [F, C]}\n"),
         "x.yaml:7:25: error: 'C' is no operation; valid: F, B (whole backward), I (input gradient), W (weight "
         "gradient)\n"
         "    - {repeat: m, do: [F, C]}\n                          ^\n"},
        {"part of a split backward", file_with("phases:\n  - do: [F, I]\n"),
         "x.yaml:7:13: error: I is a part of a split backward, and this file says 'backward: whole'\n"
         "    - do: [F, I]\n              ^\n"},
        {"unknown name", file_with("phases:\n  - {repeat: m - n, do: [F]}\n"),
         "x.yaml:7:18: error: unknown name 'n', did you mean 'p'?\n    - {repeat: m - n, do: [F]}\n"
         "                   ^\n"},
        {"unknown name in a condition", file_with("phases:\n  - do: [F, B if Q > 1]\n"),
         "x.yaml:7:18: error: unknown name 'Q', did you mean 'p'?\n    - do: [F, B if Q > 1]\n"
         "                   ^\n"},
        {"unknown name in a chunk", file_with("phases:\n  - do: [F(x)]\n"),
         "x.yaml:7:12: error: unknown name 'x', did you mean 'p'?\n    - do: [F(x)]\n             ^\n"},
        {"quoted and folded", file_with("phases:\n  - repeat: \"min(m,\n      pp)\"\n    do: [F]\n"),
         "x.yaml:8:7: error: unknown name 'pp', did you mean 'p'?\n        pp)\"\n        ^\n"},
        {"open parenthesis", file_with("phases:\n  - do: [\"F(r\"]\n"),
         "x.yaml:7:12: error: this '(' is not closed\n    - do: [\"F(r\"]\n             ^\n"},
        {"rest after an operation", file_with("phases:\n  - do: [F B]\n"),
         "x.yaml:7:12: error: 'B' after an operation; valid: '&' and another operation, or 'if' and a condition\n"
         "    - do: [F B]\n             ^\n"},
        {"pair of two forwards", file_with("phases:\n  - do: [F&F]\n"),
         "x.yaml:7:10: error: '&' joins one forward and one whole backward, the forward first: F&B\n"
         "    - do: [F&F]\n           ^\n"},
        {"mixed chunk choice", file_with("phases:\n  - do: [F, F1]\n", "2"),
         "x.yaml:7:13: error: F1 after F: all operations of a kind name their chunk, or none does\n"
         "    - do: [F, F1]\n              ^\n"},
        {"phase without do", file_with("phases:\n  - {repeat: m}\n"),
         "x.yaml:7:5: error: a phase needs 'do': a list of operations\n    - {repeat: m}\n      ^\n"},
        {"parameter named as a symbol", file_with("parameters: {m: 1}\n" + kPhases),
         "x.yaml:6:14: error: parameter 'm': the name has a meaning already\n  parameters: {m: 1}\n"
         "               ^\n"},
        {"condition without message", file_with("require:\n  - that: m > 1\n" + kPhases),
         "x.yaml:7:5: error: a condition needs 'that' and 'message'\n    - that: m > 1\n      ^\n"},
        {"condition on the rank", file_with("require:\n  - {that: r > 1, message: no}\n" + kPhases),
         "x.yaml:7:12: error: unknown name 'r', did you mean 'p'?\n    - {that: r > 1, message: no}\n"
         "             ^\n"},
        {"message with a wrong value", file_with("require:\n  - {that: m > 1, message: \"m is {n}\"}\n" + kPhases),
         "x.yaml:7:35: error: unknown name 'n', did you mean 'p'?\n    - {that: m > 1, message: \"m is {n}\"}\n"
         "                                    ^\n"},
        {"unknown measure", file_with("check:\n  - {what: bubbel, equals: 1}\n" + kPhases),
         "x.yaml:7:12: error: what is 'bubbel', not one of peak_in_flight, makespan, stage_span, makespan_bubble, "
         "stage_span_bubble\n    - {what: bubbel, equals: 1}\n             ^\n"},
        {"walk beside a table", file_with("walk: {}\ntable: [\"0F0 0B0\"]\n"),
         "x.yaml:6:7: error: 'walk' has no meaning beside 'table'\n  walk: {}\n        ^\n"},
        {"walk direction", file_with("walk: {backward: {chunks: down}}\n" + kPhases),
         "x.yaml:6:27: error: chunks is 'down', not one of ascending, descending\n  walk: {backward: {chunks: down}}\n"
         "                            ^\n"},
        {"table cell", file_with("table:\n  - 0F0 0B0x\n"),
         "x.yaml:7:9: error: '0B0x' is no operation: write stage, one of F B I W, microbatch, as in 0F2\n"
         "    - 0F0 0B0x\n          ^\n"},
        {"table pair", file_with("table:\n  - (0F0 0B0)\n"),
         "x.yaml:7:10: error: a pair reads (0F2;0B0): ';' is missing\n    - (0F0 0B0)\n           ^\n"}}));

struct OrderFault {
  const char* title;
  std::string text;
  int p, m, v;
  const char* errors;
};
void PrintTo(const OrderFault& fault, std::ostream* out) { *out << fault.title; }

class OrderFaults : public testing::TestWithParam<OrderFault> {};

TEST_P(OrderFaults, AreNamedWithRankAndPhase) {
  EXPECT_EQ(order_errors(GetParam().text, GetParam().p, GetParam().m, GetParam().v), GetParam().errors);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, OrderFaults,
    testing::ValuesIn(std::vector<OrderFault>{
        {"too many forwards", file_with("phases:\n  - {repeat: m + r, do: [F]}\n  - {repeat: m, do: [B]}\n"), 2, 8, 1,
         "x.yaml:7:26: error: rank 1: phase 1 asks for forward 9 of 8 (p=2, m=8, v=1)\n    - {repeat: m + r, do: [F]}\n"
         "                           ^\n"},
        {"too many backwards of a chunk",
         file_with("phases:\n  - {repeat: m, do: [F0, F1]}\n  - {repeat: m + 1, do: [B1]}\n", "2"), 1, 3, 2,
         "x.yaml:8:26: error: rank 0: phase 2 asks for backward 4 of 3 of chunk 1 (p=1, m=3, v=2)\n"
         "    - {repeat: m + 1, do: [B1]}\n                           ^\n"},
        {"no such chunk", file_with("phases:\n  - {repeat: m, do: [F(r + 1)]}\n"), 1, 3, 1,
         "x.yaml:7:22: error: rank 0: phase 1 asks for chunk 1 of 1 (p=1, m=3, v=1)\n"
         "    - {repeat: m, do: [F(r + 1)]}\n                       ^\n"},
        {"weight gradient of nothing", file_with("phases:\n  - {repeat: m, do: [F, W, I]}\n", "1", "split"), 1, 3, 1,
         "x.yaml:7:25: error: rank 0: phase 1 asks for a weight gradient, but none is left to do (p=1, m=3, v=1)\n"
         "    - {repeat: m, do: [F, W, I]}\n                          ^\n"},
        {"negative repeat", file_with("phases:\n  - {repeat: m - 3, do: [F, B]}\n"), 1, 1, 1,
         "x.yaml:7:14: error: rank 0: phase 1 would repeat -2 times (p=1, m=1, v=1)\n    - {repeat: m - 3, do: [F, "
         "B]}\n"
         "               ^\n"},
        {"too few", file_with("phases:\n  - {repeat: m - 1, do: [F, B]}\n"), 1, 4, 1,
         "x.yaml:7:3: error: rank 0: the phases end after 3 of 4 forwards (p=1, m=4, v=1)\n"
         "    - {repeat: m - 1, do: [F, B]}\n    ^\n"},
        {"weight gradients left", file_with("phases:\n  - {repeat: m, do: [F, I]}\n", "1", "split"), 1, 4, 1,
         "x.yaml:7:3: error: rank 0: the phases end after 0 of 4 weight gradients (p=1, m=4, v=1)\n"
         "    - {repeat: m, do: [F, I]}\n    ^\n"},
        {"backward before its forward", file_with("phases:\n  - {repeat: m, do: [B, F]}\n"), 1, 4, 1,
         "x.yaml:7:3: error: schedule 'x', rank 0: 0B0 comes before its forward (p=1, m=4, v=1)\n"},
        {"division by zero", file_with("phases:\n  - {repeat: m // r, do: [F, B]}\n"), 2, 4, 1,
         "x.yaml:7:16: error: division by zero: 4 // 0\n    - {repeat: m // r, do: [F, B]}\n                 ^\n"},
        {"empty group", file_with("walk: {forward: {group: r - 1}}\n" + kPhases), 2, 4, 1,
         "x.yaml:6:25: error: rank 0: a group of -1 microbatches\n  walk: {forward: {group: r - 1}}\n"
         "                          ^\n"},
        {"its own condition",
         file_with("require:\n  - {that: m % p == 0, message: \"m={m} is no multiple of {p}\"}\n" + kPhases), 3, 4, 1,
         "x.yaml:7:12: error: schedule 'x' cannot do this: m=4 is no multiple of 3 (p=3, m=4, v=1)\n"
         "    - {that: m % p == 0, message: \"m={m} is no multiple of {p}\"}\n             ^\n"},
        {"table for other sizes", file_with("table:\n  - 0F0 0B0\n"), 1, 2, 1,
         "x.yaml:7:3: error: the table is written for 1 ranks and 1 microbatches, not for p=1, m=2\n    - 0F0 0B0\n    "
         "^\n"},
        {"table with a gap", file_with("table:\n  - 0F0 0F1 0B1\n"), 1, 2, 1,
         "x.yaml:7:3: error: schedule 'x', rank 0: stage 0 has no backward of microbatch 0 (p=1, m=2, v=1)\n"},
        {"table with a stage of another rank", file_with("table:\n  - 0F0 1B0\n  - 1F0 1B0\n"), 2, 1, 1,
         "x.yaml:7:3: error: schedule 'x', rank 0: 1B0: stage 1 does not lie on this rank (p=2, m=1, v=1)\n"},
        {"pair that waits for itself", file_with("table:\n  - (0F0;0B0)\n"), 1, 1, 1,
         "x.yaml:7:3: error: schedule 'x', rank 0: 0F0 overlaps with its own backward (p=1, m=1, v=1)\n"},
        {"table with a repetition", file_with("table:\n  - 0F0 0B0 0B0\n"), 1, 1, 1,
         "x.yaml:7:3: error: schedule 'x', rank 0: 0B0 comes after a backward of the same stage and microbatch (p=1, "
         "m=1, "
         "v=1)\n"},
        {"too large", file_with(kPhases), 1000, 2000000, 1,
         "x.yaml:1:7: error: p=1000, m=2000000, v=1: a plan holds at most 100000000 operations and 32767 stages\n"}}));

TEST(ScheduleFiles, TableGivesItsOrder) {
  ir::DiagnosticSink sink;
  const auto s = read_schedule(source(file_with("table:\n  - 0F0 0F1 0B0 0B1\n  - 1F0 (1F1;1B0) 1B1\n")), sink);
  ASSERT_TRUE(s) << sink.text();
  EXPECT_EQ(order_texts(*s, sizes(*s, 2, 2, 1)), (std::vector<std::string>{"0F0 0F1 0B0 0B1", "1F0 (1F1;1B0) 1B1"}));
}

TEST(ScheduleFiles, WrongClosedFormIsFound) {
  ir::DiagnosticSink sink;
  const auto s =
      read_schedule(source(file_with(kPhases + "check:\n  - {what: peak_in_flight, equals: m - r}\n")), sink);
  ASSERT_TRUE(s) << sink.text();
  EXPECT_EQ(check_schedule(*s, sizes(*s, 2, 4, 1), {}, sink), std::nullopt);
  EXPECT_EQ(sink.all()[0].message, "peak_in_flight of rank 1 is 4, not 3 (p=2, m=4, v=1, F=1, I=1, W=1)");
  EXPECT_EQ(sink.all()[0].where.line, 10);
}

TEST(ScheduleFiles, UnknownNamesListWhatThereIs) {
  TemporaryFolder folder;
  folder.write("alpha.yaml", "");
  folder.write("beta.yaml", "");
  std::string reported;
  ir::DiagnosticSink sink;
  const auto report = [&](std::string message) { reported = std::move(message); };
  EXPECT_FALSE(load_schedule("alpa", {folder.path()}, report, sink));
  EXPECT_EQ(reported,
            "there is no schedule 'alpa', did you mean 'alpha'?; available: alpha, beta (or a path to a .yaml file)");
  EXPECT_FALSE(load_schedule("./none.yaml", {folder.path()}, report, sink));
  EXPECT_EQ(reported, "cannot read the schedule file './none.yaml': No such file or directory");
}

TEST(ScheduleFiles, EarlierFoldersWin) {
  TemporaryFolder a, b;
  a.write("x.yaml", file_with(kPhases));
  b.write("x.yaml", "broken: {");
  ir::DiagnosticSink sink;
  const auto report = [](const std::string& message) { ADD_FAILURE() << message; };
  EXPECT_TRUE(load_schedule("x", {a.path(), b.path()}, report, sink)) << sink.text();
  EXPECT_EQ(schedule_names({a.path(), b.path()}), std::vector<std::string>{"x"});
}

// Written here and now: backward as early as possible after a burst of forwards whose length is a parameter.
TEST(ScheduleFiles, NewScheduleNeedsNoCode) {
  TemporaryFolder folder;
  const std::string path =
      folder.write("burst.yaml",
                   "name: burst\nreference: this test\nplacement: loop\nchunks: 1\nbackward: split\n"
                   "parameters: {burst: 2}\n"
                   "require:\n"
                   "  - {that: m % burst == 0, message: \"m={m} is not a multiple of {burst}\"}\n"
                   "phases:\n"
                   "  - {repeat: \"min(burst * (p - 1 - r), m)\", do: [F]}\n"
                   "  - {repeat: m - F, do: [F, I, W if I > 1]}\n"
                   "  - {repeat: m - I, do: [I, W]}\n"
                   "  - {repeat: m - W, do: [W]}\n");
  for (int p = 1; p <= 4; ++p) {
    ir::DiagnosticSink sink;
    const auto configuration =
        read_configuration(source(config_text(8, p, 9)),
                           std::vector<std::string>{"schedule.params=burst=3", "schedule.name=" + path}, sink);
    const auto fail = [&](std::string message) { sink.error({}, std::move(message)); };
    const auto s = load_schedule(path, {}, fail, sink);
    ASSERT_TRUE(s && configuration) << sink.text();
    auto plan = make_plan(*configuration, *s, sink);
    ASSERT_TRUE(plan) << sink.text();
    const auto pipeline = passes::parse_pipeline(ir::SourceText("", passes::default_pipeline()), sink);
    ASSERT_TRUE(passes::run_pipeline(*pipeline, *plan, sink)) << sink.text();
    EXPECT_EQ(plan->level, ir::Level::Communication);
    EXPECT_TRUE(ir::verify(*plan, sink)) << sink.text();
  }
}

}  // namespace
}  // namespace fem::compiler::test
