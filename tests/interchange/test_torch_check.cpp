// The linter. PyTorch 2.11's validator accepts all of the files marked [accepted upstream].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/interchange/files.hpp"

namespace fem::compiler::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::optional<TorchShape> shape_of(const std::string& text) {
  ir::DiagnosticSink sink;
  const auto file = read(text, sink);
  auto shape = file ? check_torch_csv(*file, sink) : std::nullopt;
  EXPECT_TRUE(shape) << sink.text();
  return shape;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) throw std::logic_error(what);
  return text.replace(at, what.size(), with);
}

TEST(TorchCheck, ShapeOfTheSmallFile) {
  const auto shape = shape_of(kTwoRanks);
  EXPECT_EQ(shape->microbatches, 2);
  EXPECT_THAT(shape->rank, ElementsAre(0, 1));
  EXPECT_EQ(shape->placement->kind, PlacementKind::Loop);
  // Counted by hand, a receive in the step of its send: F0 1, SEND_F0 2, F1 3, SEND_F1 4; on rank 1 F0 5, B0 6, SEND_B0
  // 7, F1 8, B1 9, SEND_B1 10; on rank 0 RECV_B1 10, B1 11.
  EXPECT_EQ(shape->unit_steps, 11);
}

TEST(TorchCheck, PlacementIsReadFromTheRows) {
  EXPECT_EQ(shape_of(kV)->placement->kind, PlacementKind::V);
  EXPECT_THAT(shape_of(kV)->rank, ElementsAre(0, 1, 1, 0));
  const auto loop = shape_of("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n");
  EXPECT_EQ(loop->placement->kind, PlacementKind::Loop);
  EXPECT_EQ(loop->placement->v, 2);
  const auto other = shape_of("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n");
  EXPECT_FALSE(other->placement);
  EXPECT_EQ(ranks_text(*other), "0 0 1 1");
}

// p=4, m=4: the order that Schedule1F1B._get_pipeline_order gives; forwards of the last rank count 1 to 4.
TEST(TorchCheck, TheShiftedLastRankOf1F1B) {
  const std::string text =
      "0F0,0F1,0F2,,,,,,,0F3,0B0,,0B1,,0B2,,0B3,0REDUCE_GRAD\n"
      "1F0,1F1,1F2,1B0,1F3,1B1,1B2,1B3\n"
      "2F0,2F1,2B0,2F2,2B1,2F3,2B2,2B3\n"
      "3F1,3B0,3F2,3B1,3F3,3B2,3F4,3B3,3REDUCE_GRAD\n";
  EXPECT_EQ(faults(text),
            "f.csv:4:1: error: row 4 (rank 3), cell 1 '3F1': stage 3 runs forwards 1 to 4 but backwards 0 to 3: its "
            "forwards are shifted by one, as torch's export of 1F1B does on the last rank; subtract 1 from the "
            "microbatch of each forward of this stage\n"
            "  3F1,3B0,3F2,3B1,3F3,3B2,3F4,3B3,3REDUCE_GRAD\n"
            "  ^\n");
  EXPECT_EQ(faults(replaced(text, "3F1,3B0,3F2,3B1,3F3,3B2,3F4,3B3", "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3")), "");
}

// [accepted upstream]
TEST(TorchCheck, Duplicates) {
  EXPECT_THAT(faults("0F0,0F0,0B0\n"), AllOf(StartsWith("f.csv:1:5: error: row 1 (rank 0), cell 2 '0F0': "),
                                             HasSubstr("stands a second time: first in cell 1 of the row")));
  EXPECT_THAT(
      faults(replaced(kTwoRanks, "1SEND_B1", "1SEND_B1,1SEND_B1")),
      StartsWith("f.csv:2:53: error: row 2 (rank 1), cell 9 '1SEND_B1': stands a second time: first in cell 8"));
}

// [accepted upstream] where the counts happen to fit.
TEST(TorchCheck, MicrobatchesOutOfRange) {
  const std::string text = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2F0,2B0,2F7,2B7\n";
  const std::string said = faults(text);
  EXPECT_THAT(said, HasSubstr("f.csv:3:9: error: row 3 (rank 2), cell 3 '2F7': microbatch 7 is out of range: the other "
                              "stages run 2 microbatches, 0 to 1"));
  EXPECT_THAT(said, HasSubstr("f.csv:3: error: row 3 (rank 2): stage 2 does nothing with microbatch 1"));
}

// [accepted upstream]: I and W beside B count as one and a half backwards there.
TEST(TorchCheck, WholeBackwardBesideItsParts) {
  EXPECT_THAT(
      faults("0F0,0I0,0W0,0B0\n"),
      StartsWith("f.csv:1:13: error: row 1 (rank 0), cell 4 '0B0': microbatch 0 of stage 0 runs backward twice, "
                 "as a whole (B) and in parts (I in cell 2): its gradients would be added twice"));
}

TEST(TorchCheck, MissingOperations) {
  EXPECT_THAT(faults("0F0,0F1,0B0\n"), StartsWith("f.csv:1:5: error: row 1 (rank 0), cell 2 '0F1': has no backward: "
                                                  "stage 0 needs B, or I and W, of microbatch 1"));
  EXPECT_THAT(faults("0F0,0I0\n"), HasSubstr("cell 2 '0I0': has no W"));
  EXPECT_THAT(faults("0F0,0F1,0I0,0W0,0W1\n"), HasSubstr("cell 5 '0W1': has no I"));
  EXPECT_THAT(faults("0F0,0B0,0B1\n1F0,1F1,1B0,1B1\n"),
              HasSubstr("cell 3 '0B1': stage 0 has no forward of microbatch 1"));
  EXPECT_THAT(faults("0B0\n"), HasSubstr("most stages run no microbatch forward"));
  EXPECT_THAT(faults("0F0,0B0\n1F0,1F1,1F2,1F3,1F4,1B0,1B1,1B2,1B3,1B4\n2F0,2F1,2F2,2F3,2F4,2B0,2B1,2B2,2B3,2B4\n"),
              StartsWith("f.csv:1: error: row 1 (rank 0): stage 0 does nothing with microbatches 1 to 4: it needs a "
                         "forward and a backward of each of the 5 microbatches"));
}

TEST(TorchCheck, OrderOnOneRank) {
  EXPECT_THAT(faults("0B0,0F0\n"), HasSubstr("cell 1 '0B0': stands before its forward, which is in cell 2"));
  EXPECT_THAT(faults("0F0,0W0,0I0\n"),
              StartsWith("f.csv:1:5: error: row 1 (rank 0), cell 2 '0W0': stands before its input gradient I, which is "
                         "in cell 3"));
  EXPECT_THAT(faults("(0F0;0B0)OVERLAP_F_B\n"), HasSubstr("'0B0': stands before its forward, which is in cell 1"));
}

TEST(TorchCheck, StagesLieOnOneRankEach) {
  EXPECT_THAT(faults("0F0,1F0,1B0,0B0\n1F0,1B0\n"),
              AllOf(StartsWith("f.csv:2:1: error: row 2 (rank 1), cell 1 '1F0': stage 1 runs on rank 0 and on rank 1"),
                    HasSubstr("schedules of two directions, with two replicas of the stages, cannot be written")));
  EXPECT_THAT(faults("0F0,0B0\n2F0,2B0\n"),
              HasSubstr("f.csv: error: no rank runs stage 1, although there is a stage 2"));
  EXPECT_THAT(faults("0F0,0B0,1UNSHARD\n"), HasSubstr("cell 3 '1UNSHARD': no rank runs stage 1"));
}

// [accepted upstream]: each rank by itself is in order.
TEST(TorchCheck, CirclesAcrossRanks) {
  EXPECT_EQ(
      faults("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"),
      "f.csv:1:5: error: row 1 (rank 0), cell 2 '0B0': is in a circle of operations that wait for each other: rank "
      "0 waits at '0B0' (cell 2) for '1B0' (cell 4) of rank 1, rank 1 waits at '1F1' (cell 1) for '0F1' (cell 3) of "
      "rank 0\n"
      "  0F0,0B0,0F1,0B1\n"
      "      ^\n");
  // One rank alone can wait for itself: the second chunk before the first.
  EXPECT_THAT(faults("1F0,0F0,1B0,0B0\n"), HasSubstr("rank 0 waits at '1F0' (cell 1) for '0F0' (cell 2) of rank 0"));
}

TEST(TorchCheck, MessagesArePairedAndInPlace) {
  EXPECT_THAT(faults(replaced(kTwoRanks, "0SEND_F1,", "")),
              StartsWith("f.csv:1:14: error: row 1 (rank 0), cell 3 '0F1': has no 0SEND_F1: stage 1 lies on rank 1"));
  EXPECT_THAT(faults(replaced(kTwoRanks, "0RECV_B0,0B0", "0B0,0RECV_B0")),
              HasSubstr("cell 6 '0RECV_B0': stands after the operation that needs it, which is in cell 5"));
  EXPECT_THAT(faults(replaced(kTwoRanks, "0F0,0SEND_F0", "0SEND_F0,0F0")),
              HasSubstr("cell 1 '0SEND_F0': stands before the operation that makes it, which is in cell 2"));
  EXPECT_THAT(faults(replaced(kTwoRanks, "0F0,0S", "0RECV_F0,0F0,0S")),
              HasSubstr("cell 1 '0RECV_F0': there is no stage before 0"));
  EXPECT_THAT(faults("0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n"),
              HasSubstr("stages 0 and 1 lie on the same rank: the tensor is passed on in place, without a message"));
}

// NCCL matches the messages between two ranks by order alone.
TEST(TorchCheck, MessagesBetweenTwoRanksKeepTheirOrder) {
  EXPECT_THAT(faults(replaced(kTwoRanks, "1RECV_F0,1RECV_F1", "1RECV_F1,1RECV_F0")),
              StartsWith("f.csv:2:1: error: row 2 (rank 1), cell 1 '1RECV_F1': receives out of turn: rank 0 sends "
                         "'0SEND_F0' (its cell 2) first"));
}

TEST(TorchCheck, CirclesOfMessages) {
  const std::string text =
      "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
  EXPECT_THAT(faults(text), HasSubstr("rank 0 waits at '0RECV_B0' (cell 3) for '1SEND_B0' (cell 6) of rank 1, rank 1 "
                                      "waits at '1RECV_F1' (cell 3) for '0SEND_F1' (cell 6) of rank 0"));
}

TEST(TorchCheck, ShardingCells) {
  const std::string good = "0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n";
  EXPECT_EQ(faults(good), "");
  EXPECT_THAT(faults(replaced(good, "0UNSHARD,", "0UNSHARD,0UNSHARD,")),
              HasSubstr("cell 2 '0UNSHARD': unshards stage 0 a second time without a RESHARD between"));
  EXPECT_THAT(faults(replaced(good, "0UNSHARD,", "")),
              HasSubstr("cell 1 '0F0': computes while stage 0 is not unsharded"));
  EXPECT_THAT(faults(replaced(good, "0RESHARD", "0RESHARD,0RESHARD")),
              HasSubstr("cell 6 '0RESHARD': reshards stage 0, which is not unsharded here"));
  EXPECT_THAT(faults(replaced(good, "0B0,0REDUCE_GRAD", "0REDUCE_GRAD,0B0")),
              HasSubstr("cell 4 '0B0': comes after the REDUCE_GRAD of stage 0 in cell 3"));
  EXPECT_THAT(faults(replaced(good, "0REDUCE_GRAD", "0REDUCE_GRAD,0REDUCE_GRAD")),
              HasSubstr("reduces the gradients of stage 0 a second time: first in cell 4"));
}

// Damage any one cell of a right file and the linter says something: no operation is there for nothing.
TEST(TorchCheck, EveryCellOfAFileIsNeeded) {
  for (const std::string& text : {kTwoRanks, kV}) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = text.find_first_of(",\n", begin);
      std::string damaged = text;
      damaged.erase(begin, end + 1 - begin);
      if (text[end] == '\n') damaged.insert(begin, "\n");
      if (damaged.find(",\n") != std::string::npos) damaged.erase(damaged.find(",\n"), 1);
      EXPECT_NE(faults(damaged), "") << damaged;
      begin = end + 1;
    }
  }
}

}  // namespace
}  // namespace fem::compiler::test
