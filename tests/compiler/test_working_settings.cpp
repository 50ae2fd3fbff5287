// Where a schedule's own condition fails: the nearest settings that meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/working_settings.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

std::string note(const Schedule& schedule, int layers, int pp, int global, const std::vector<std::string>& set = {}) {
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(source(config_text(layers, pp, global)), set, sink);
  const auto sizes = configuration ? bind_schedule(*configuration, schedule, sink) : std::nullopt;
  if (!sizes) throw std::runtime_error(sink.text());
  note_working_settings(*configuration, schedule, *sizes, sink);
  return sink.all().empty() ? "" : sink.all()[0].message;
}

TEST(WorkingSettings, ABatchWhereOneDoes) {
  EXPECT_EQ(note(schedule("dualpipe_v"), 24, 4, 4), "batch.global=4 gives m=4; nearest: 8");  // m >= 2p
  EXPECT_EQ(note(schedule("dualpipe_v"), 24, 4, 8, {"parallel.dp=2"}), "batch.global=8 gives m=4; nearest: 16");
  EXPECT_EQ(note(schedule("chimera"), 24, 4, 5), "batch.global=5 gives m=5; nearest: 4 or 6");
  EXPECT_EQ(note(schedule("dualpipe"), 24, 4, 9), "batch.global=9 gives m=9; nearest: 8 or 10");
  EXPECT_EQ(note(schedule("zb_v"), 24, 4, 3), "batch.global=3 gives m=3; nearest: 7");  // m >= 2p - 1
}

TEST(WorkingSettings, PipelineRanksWhereNoBatchDoes) {
  constexpr const char* kNone = "no batch.global alone meets the conditions; nearest: ";
  EXPECT_EQ(note(schedule("dualpipe"), 24, 3, 8), std::string(kNone) + "parallel.pp=2 or 4");
  EXPECT_EQ(note(schedule("dualpipe"), 24, 3, 6), std::string(kNone) + "parallel.pp=2");  // p=4 asks for m >= 8
  EXPECT_EQ(note(schedule("chimera"), 24, 5, 8), std::string(kNone) + "parallel.pp=4 or 6");
  EXPECT_EQ(note(schedule("chimera"), 5, 5, 8), std::string(kNone) + "parallel.pp=4");  // a block for each stage
  EXPECT_EQ(note(schedule("chimera"), 24, 5, 7), "no change of one setting alone meets the conditions");
}

// 3 is no group for p=4; with p=2 the rest of 8 in groups of 3 is long enough, with p=3 it is not.
TEST(WorkingSettings, ParametersWhereNoBatchDoes) {
  EXPECT_EQ(note(schedule("interleaved_1f1b"), 24, 4, 8, {"schedule.params=group=3"}),
            "no batch.global alone meets the conditions; nearest: parallel.pp=2; schedule.params group=4");
  // The rest of 12 in groups of 5 is shorter than p.
  EXPECT_EQ(note(schedule("interleaved_1f1b"), 24, 4, 12, {"schedule.params=group=5"}),
            "batch.global=12 gives m=12; nearest: 10 or 14");
}

constexpr const char* kEvenChunks =
    "name: x\nreference: this test\nplacement: loop\nchunks: {default: 3, min: 1, max: 8}\nbackward: whole\n"
    "require:\n  - {that: v % 2 == 0, message: \"v={v} is odd\"}\n"
    "phases:\n  - {repeat: m * v, do: [F]}\n  - {repeat: m * v, do: [B]}\n";

TEST(WorkingSettings, ChunksWhereNoBatchDoes) {
  ir::DiagnosticSink sink;
  const auto s = read_schedule(source(kEvenChunks), sink);
  ASSERT_TRUE(s) << sink.text();
  constexpr const char* kNone = "no batch.global alone meets the conditions; nearest: ";
  EXPECT_EQ(note(*s, 24, 2, 8), std::string(kNone) + "schedule.chunks=2 or 4");
  EXPECT_EQ(note(*s, 7, 2, 8), std::string(kNone) + "schedule.chunks=2");  // 8 stages need 8 blocks
  EXPECT_EQ(note(*s, 6, 2, 8, {"parallel.layers_per_stage=1,1,1,1,1,1"}),
            "no change of one setting alone meets the conditions");
  EXPECT_EQ(note(*s, 24, 2, 8, {"schedule.chunks=2"}), "");
}

TEST(WorkingSettings, FollowTheErrorOfTheSchedule) {
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(source(config_text(24, 4, 4)), {}, sink);
  EXPECT_FALSE(make_plan(*configuration, schedule("dualpipe_v"), sink));
  ASSERT_EQ(sink.all().size(), 2u) << sink.text();
  EXPECT_EQ(sink.all()[0].message,
            "schedule 'dualpipe_v' cannot do this: needs at least 2p = 8 microbatches, m is 4 (p=4, m=4, v=2)");
  EXPECT_EQ(sink.all()[1].message, "batch.global=4 gives m=4; nearest: 8");
}

}  // namespace
}  // namespace fem::compiler::test
