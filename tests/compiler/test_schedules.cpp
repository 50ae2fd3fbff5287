// The schedule files: published orders, makespans and closed forms.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/schedule_check.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using testing::ElementsAre;

// Orders for p=2, m=4, each replayed by hand from the rule in the file's reference.
TEST(Schedules, OrderOf1F1B) {
  const Schedule s = schedule("1f1b");
  EXPECT_THAT(order_texts(s, sizes(s, 2, 4, 1)),
              ElementsAre("0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"));
}

TEST(Schedules, OrderOfGPipe) {
  const Schedule s = schedule("gpipe");
  EXPECT_THAT(order_texts(s, sizes(s, 2, 4, 1)),
              ElementsAre("0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0", "1F0 1F1 1F2 1F3 1B3 1B2 1B1 1B0"));
}

TEST(Schedules, OrderOfInterleaved) {
  const Schedule s = schedule("interleaved_1f1b");
  EXPECT_THAT(order_texts(s, sizes(s, 2, 4, 2)),
              ElementsAre("0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
                          "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"));
}

TEST(Schedules, OrderOfLoopedBreadthFirst) {
  const Schedule s = schedule("looped_bfs");
  EXPECT_THAT(order_texts(s, sizes(s, 2, 2, 2)),
              ElementsAre("0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0", "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0"));
}

// W of microbatch i - r right after the input gradient of i.
TEST(Schedules, OrderOfZeroBubbleH1) {
  const Schedule s = schedule("zb_h1");
  EXPECT_THAT(order_texts(s, sizes(s, 2, 4, 1)), ElementsAre("0F0 0F1 0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2 0I3 0W3",
                                                             "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1F3 1I3 1W2 1W3"));
}

struct Replay {
  const char* name;
  int v;
  std::int64_t p4m8, p8m24;  // makespans for F = B = W = 1
};

// Makespans replayed from the published rules, communication free.
TEST(Schedules, UnitCostMakespans) {
  for (const Replay& row :
       {Replay{"1f1b", 1, 33, 93}, Replay{"interleaved_1f1b", 2, 57, 165}, Replay{"zb_h1", 1, 27, 79},
        Replay{"zb_h2", 1, 27, 79}, Replay{"gpipe", 1, 33, 93}, Replay{"looped_bfs", 2, 57, 165}}) {
    const Schedule s = schedule(row.name);
    for (const auto& [p, m, makespan] : {std::tuple{4, 8, row.p4m8}, std::tuple{8, 24, row.p8m24}}) {
      const ScheduleCase c = sizes(s, p, m, row.v);
      ir::DiagnosticSink sink;
      const auto order = generate_order(s, c, sink);
      ASSERT_TRUE(order) << sink.text();
      const auto measures = measure_order(*order, s.place(c), m, {}, sink);
      ASSERT_TRUE(measures) << sink.text();
      EXPECT_EQ(measures->makespan, makespan) << row.name << " p=" << p;
    }
  }
}

TEST(Schedules, StageSpanAndPeaks) {
  const auto measure = [](const char* name, int v, int p, int m) {
    const Schedule s = schedule(name);
    const ScheduleCase c = sizes(s, p, m, v);
    ir::DiagnosticSink sink;
    return measure_order(*generate_order(s, c, sink), s.place(c), m, {}, sink).value();
  };
  EXPECT_EQ(measure("zb_h2", 1, 4, 8).stage_span, 24);
  EXPECT_EQ(measure("zb_h2", 1, 8, 24).stage_span, 72);
  EXPECT_THAT(measure("gpipe", 1, 4, 8).peak_in_flight, ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(measure("1f1b", 1, 4, 8).peak_in_flight, ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(measure("looped_bfs", 2, 4, 8).peak_in_flight, ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(measure("interleaved_1f1b", 2, 4, 8).peak_in_flight, ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(measure("zb_h1", 1, 4, 8).peak_in_flight, ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(measure("zb_h2", 1, 4, 8).peak_in_flight, ElementsAre(7, 7, 7, 7));
}

// Every file's own closed forms over the grid, under unequal costs too. A case that the file's conditions refuse is
// counted, and every condition must have been compared somewhere.
TEST(Schedules, ClosedFormsHoldOnTheGrid) {
  for (const std::string& name : schedule_names(folders())) {
    const Schedule s = schedule(name);
    EXPECT_FALSE(s.check.empty()) << name;
    int compared = 0, cases = 0;
    for (int v = s.chunks.low; v <= std::min(s.chunks.high, 4); ++v) {
      for (int p : {1, 2, 3, 4, 5, 6, 7, 8, 16}) {
        for (int m : std::set{1, p, 2 * p, 2 * p + 1, 3 * p, 24}) {
          ir::DiagnosticSink sink;
          const ScheduleCase c = sizes(s, p, m, v);
          const auto broken = broken_requirement(s, c, sink);
          ASSERT_TRUE(broken) << sink.text();
          if (*broken) continue;
          for (const OrderCosts& costs : {OrderCosts{1, 1, 1}, OrderCosts{10, 12, 8}, OrderCosts{2, 1, 1}}) {
            const auto count = check_schedule(s, c, costs, sink);
            ASSERT_TRUE(count) << name << "\n" << sink.text();
            compared += *count;
            ++cases;
          }
        }
      }
    }
    EXPECT_GT(cases, 20) << name;  // the narrowest condition: an even p, an even m of at least 2p
    EXPECT_GT(compared, 20) << name;
  }
}

// A group size other than p, with a remainder: groups of 4 and 3 microbatches on 3 ranks.
TEST(Schedules, InterleavedGroupsWithRemainder) {
  const Schedule s = schedule("interleaved_1f1b");
  ScheduleCase c = sizes(s, 3, 7, 2);
  c.parameters = {4};
  ir::DiagnosticSink sink;
  const auto order = generate_order(s, c, sink);
  ASSERT_TRUE(order) << sink.text();
  std::string forwards;
  for (const Op& op : (*order)[0]) {
    if (op.kind == OpKind::F) forwards += std::to_string(op.stage) + "F" + std::to_string(op.microbatch) + " ";
  }
  EXPECT_EQ(forwards, "0F0 0F1 0F2 0F3 3F0 3F1 3F2 3F3 0F4 0F5 0F6 3F4 3F5 3F6 ");
  EXPECT_TRUE(measure_order(*order, s.place(c), 7, {}, sink)) << sink.text();  // no deadlock
}

}  // namespace
}  // namespace fem::compiler::test
