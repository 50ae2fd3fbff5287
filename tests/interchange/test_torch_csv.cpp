// Reading schedule files: what is accepted, and where what is not is pointed at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/interchange/files.hpp"

namespace fem::compiler::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// "0F1" of every cell, with the kind as it was understood.
std::vector<std::string> cells(const TorchFile& file, std::size_t row) {
  std::vector<std::string> result;
  for (const TorchCell& cell : file.rows.at(row).cells) {
    result.push_back(std::to_string(cell.stage) + std::string(name(cell.kind)) +
                     (cell.microbatch < 0 ? "" : std::to_string(cell.microbatch)) + (cell.joined ? "+" : ""));
  }
  return result;
}

TorchFile good(const std::string& text) {
  ir::DiagnosticSink sink;
  auto file = read(text, sink);
  if (!file) throw std::runtime_error(sink.text());
  return std::move(*file);
}

std::string fault(const std::string& text) {
  ir::DiagnosticSink sink;
  EXPECT_FALSE(read(text, sink)) << text;
  return sink.text();
}

TEST(TorchCsv, KindsOfCells) {
  const TorchFile file = good("2F0,3I10,3W10,1B2,1UNSHARD,1RESHARD,1REDUCE_GRAD,3SEND_F1,3RECV_F1,3SEND_B1,3RECV_B1\n");
  EXPECT_THAT(cells(file, 0), ElementsAre("2F0", "3I10", "3W10", "1B2", "1UNSHARD", "1RESHARD", "1REDUCE_GRAD",
                                          "3SEND_F1", "3RECV_F1", "3SEND_B1", "3RECV_B1"));
  EXPECT_TRUE(file.communication);
  EXPECT_FALSE(file.older_dialect);
}

TEST(TorchCsv, PairsBlanksBubblesAndRaggedRows) {
  const TorchFile file = good(" 0F0 ,,\t(0F3 ; 3B1)OVERLAP_F_B,\r\n,,,1F0\r\n");
  ASSERT_EQ(file.rows.size(), 2u);
  EXPECT_THAT(cells(file, 0), ElementsAre("0F0", "0F3+", "3B1"));
  EXPECT_THAT(cells(file, 1), ElementsAre("1F0"));
  EXPECT_EQ(file.rows[0].cells[1].cell, 3);
  EXPECT_EQ(file.rows[0].cells[2].cell, 3);
  EXPECT_EQ(file.rows[1].cells[0].cell, 4);
  EXPECT_FALSE(file.communication);
}

TEST(TorchCsv, CellsInQuotesAsSpreadsheetsWriteThem) {
  EXPECT_THAT(cells(good("\"0F0\",\" 0B0 \"\n"), 0), ElementsAre("0F0", "0B0"));
}

// Older files say BW for the whole backward and B for the input gradient.
TEST(TorchCsv, OlderDialectByItsWholeBackward) {
  const TorchFile file = good("0F0,0F1,0BW0,0B1,0W1\n");
  EXPECT_TRUE(file.older_dialect);
  EXPECT_THAT(cells(file, 0), ElementsAre("0F0", "0F1", "0B0", "0I1", "0W1"));
}

TEST(TorchCsv, OlderDialectByBAndWOfOneMicrobatch) {
  const TorchFile file = good("0F0,0F1,0B0,0W0,0B1,0W1\n");
  EXPECT_TRUE(file.older_dialect);
  EXPECT_THAT(cells(file, 0), ElementsAre("0F0", "0F1", "0I0", "0W0", "0I1", "0W1"));
}

// Where I stands too, B beside I and W of one microbatch is a fault of the current dialect, which the linter names.
TEST(TorchCsv, AnInputGradientTellsTheCurrentDialect) {
  EXPECT_FALSE(good("0F0,0I0,0B0,0W0\n").older_dialect);
  EXPECT_FALSE(good("0F0,0F1,0B0,0I1,0W1\n").older_dialect);
}

TEST(TorchCsv, MixedDialectsAreRefused) {
  EXPECT_THAT(fault("0F0,0BW0,0F1,0I1,0W1\n"), StartsWith("f.csv:1:14: error: row 1 (rank 0), cell 4 '0I1': "));
}

// The caret stands under the cell's first character: columns count from 1.
TEST(TorchCsv, FaultsNameRowCellAndText) {
  EXPECT_EQ(fault("0F0,0F1\n1F0, 1F1junk\n"),
            "f.csv:2:6: error: row 2 (rank 1), cell 2 '1F1junk': has 'junk' behind the operation 1F1\n"
            "  1F0, 1F1junk\n"
            "       ^\n");
  EXPECT_THAT(fault("0F0,0SEN_F0\n"),
              StartsWith("f.csv:1:5: error: row 1 (rank 0), cell 2 '0SEN_F0': 'SEN_F' is no type of operation, did you "
                         "mean 'SEND_F'?"));
  EXPECT_THAT(fault("0f0\n"), HasSubstr("cell 1 '0f0': 'f' is no type of operation"));
  EXPECT_THAT(fault("F0\n"), HasSubstr("cell 1 'F0': begins with no stage number"));
  EXPECT_THAT(fault("rank,0F0\n"), HasSubstr("cell 1 'rank': begins with no stage number"));
  EXPECT_THAT(fault("0\n"), HasSubstr("cell 1 '0': has no type behind the stage"));
  EXPECT_THAT(fault("0F\n"), HasSubstr("cell 1 '0F': names no microbatch: F needs one"));
  EXPECT_THAT(fault("0UNSHARD1\n"), HasSubstr("names a microbatch: UNSHARD has none"));
  EXPECT_THAT(fault("0F0 0F1\n"), HasSubstr("has ' 0F1' behind the operation 0F0"));
  EXPECT_THAT(fault("0F-1\n"), HasSubstr("'0F-1'"));
  EXPECT_THAT(fault("99999F0\n"), HasSubstr("stage 99999 is above 32000"));
  EXPECT_THAT(fault("0F99999999999999999999\n"), HasSubstr("is above 1000000000"));
}

TEST(TorchCsv, FaultsOfPairs) {
  EXPECT_THAT(fault("(0F1;1B0\n"), HasSubstr("has no ')'"));
  EXPECT_THAT(fault("(0F1;1B0)OVERLAP\n"), HasSubstr("ends in 'OVERLAP' instead of OVERLAP_F_B"));
  EXPECT_THAT(fault("(0F1;1B0)OVERLAP_F_Bx\n"), HasSubstr("ends in 'OVERLAP_F_Bx'"));
  EXPECT_THAT(fault("(0F1)OVERLAP_F_B\n"), HasSubstr("does not hold two operations"));
  EXPECT_THAT(fault("(0F1;1B0;1B1)OVERLAP_F_B\n"), HasSubstr("does not hold two operations"));
  EXPECT_THAT(fault("(0F1;1X0)OVERLAP_F_B\n"), HasSubstr("'X' is no type of operation"));
  EXPECT_THAT(fault("(1B0;0F1)OVERLAP_F_B\n"), HasSubstr("stands in a pair that is not a forward and then a whole"));
  EXPECT_THAT(fault("(0F1;1I0)OVERLAP_F_B\n"), HasSubstr("stands in a pair that is not a forward and then a whole"));
}

TEST(TorchCsv, BubblesStandInComputeOnlyFilesAlone) {
  EXPECT_EQ(
      fault("0F0,0SEND_F0,,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
      "f.csv:1:14: error: row 1 (rank 0), cell 3 '': is empty, a bubble: it stands only in files without SEND and "
      "RECV, remove it\n"
      "  0F0,0SEND_F0,,0RECV_B0,0B0\n"
      "               ^\n");
}

TEST(TorchCsv, EmptyFilesAndRows) {
  EXPECT_THAT(fault(""), HasSubstr("f.csv: error: the file is empty"));
  EXPECT_THAT(fault("0F0\n\n0F1\n"), StartsWith("f.csv:2: error: row 2 (rank 1): has no operation"));
  EXPECT_THAT(fault("0F0\n,,\n"), StartsWith("f.csv:2: error: row 2 (rank 1): has no operation"));
}

// A file of the wrong kind says so twenty times, not a million times.
TEST(TorchCsv, FaultsAreCounted) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "x,";
  ir::DiagnosticSink sink;
  EXPECT_FALSE(read(text + "x\n", sink));
  EXPECT_EQ(sink.errors(), 20);
}

}  // namespace
}  // namespace fem::compiler::test
