// The order `phases` is general enough for schedules that walk chunks themselves, in two directions, with overlapped
// pairs. The files lie beside this test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/schedule_check.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

Schedule beside(const std::string& name) {
  ir::DiagnosticSink sink;
  const auto fail = [&](std::string message) { sink.error({}, std::move(message)); };
  auto result = load_schedule(std::string(FEM_TEST_DATA "/schedules/") + name + ".yaml", {}, fail, sink);
  if (!result) throw std::runtime_error(sink.text());
  return std::move(*result);
}

OrderMeasures measure(const Schedule& s, const ScheduleCase& c) {
  ir::DiagnosticSink sink;
  const auto order = generate_order(s, c, sink);
  if (!order) throw std::runtime_error(sink.text());
  const auto measures = measure_order(*order, s.place(c), c.m, {}, sink);
  if (!measures) throw std::runtime_error(sink.text());
  return *measures;
}

// Published order for 2 ranks and 4 microbatches, rank 0.
TEST(Phases, OrderOfDualPipeV) {
  const Schedule s = beside("dualpipe_v");
  EXPECT_EQ(order_texts(s, sizes(s, 2, 4, 2))[0],
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1) (3F2;0B0) 3B2 (3F3;0B1) 3B3 0I2 0W2 0I3 0W3");
}

// Replayed makespans at F = B = W = 1 (chunks of half a rank's model in the V placement), and peaks of 2p + 1 chunks.
TEST(Phases, MakespansOfDualPipe) {
  const Schedule v = beside("dualpipe_v");
  EXPECT_EQ(measure(v, sizes(v, 4, 8, 2)).makespan, 54);
  EXPECT_THAT(measure(v, sizes(v, 4, 8, 2)).peak_in_flight, testing::Each(9));
  const Schedule two = beside("dualpipe");
  EXPECT_EQ(measure(two, sizes(two, 4, 8, 1)).makespan, 26);
  EXPECT_THAT(measure(two, sizes(two, 4, 8, 1)).peak_in_flight, testing::Each(5));
}

TEST(Phases, DualPipeRunsOverTheGrid) {
  const Schedule v = beside("dualpipe_v"), two = beside("dualpipe");
  for (int p = 1; p <= 8; ++p) {
    for (int m : {2 * p, 2 * p + 2, 3 * p + 3}) {
      EXPECT_NO_THROW(measure(v, sizes(v, p, m, 2))) << p << " " << m;
      if (p % 2 != 0 || m % 2 != 0) continue;
      EXPECT_NO_THROW(measure(two, sizes(two, p, m, 1))) << p << " " << m;
    }
  }
}

// Published order for 2 ranks, 4 microbatches and 2 chunks, rank 1.
TEST(Phases, OrderOfInterleavedZeroBubble) {
  const Schedule s = beside("interleaved_zb");
  EXPECT_EQ(order_texts(s, sizes(s, 2, 4, 2))[1],
            "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3");
}

}  // namespace
}  // namespace fem::compiler::test
