// femc's figures are what the interpreter takes, in every combination of the settings that change what a rank holds.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "executor/dry_run.hpp"
#include "ir/beside_blocks.hpp"
#include "ir/memory_blocks.hpp"
#include "tests/executor/configured_plan.hpp"

namespace fem::exec {
namespace {

constexpr const char* kModel =
    "model: {layers: 4, hidden: 32, intermediate: 48, heads: 4, kv_heads: 2, vocab: 64}\n"
    "parallel: {pp: 2, dp: 2}\nbatch: {global: 16, seq_len: 16}\nmemory: {offload_gap: 2}\n";

struct Cell {
  std::string schedule, reduce;
  int zero;
};
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.schedule << " zero=" << cell.zero << " reduce=" << cell.reduce;
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const char* schedule : {"1f1b", "gpipe", "interleaved_1f1b", "zb_h1", "zb_v", "dualpipe_v", "dualpipe"})
    for (int zero = 0; zero < 4; ++zero)
      for (const std::string reduce : {"step", "microbatch", "bucket"}) {
        // The replicas of two directions are added once a step: femc refuses the others.
        if (std::string_view(schedule) == "dualpipe" && reduce != "step") continue;
        all.push_back({schedule, reduce, zero});
      }
  return all;
}

void expect_foretold(const ir::Plan& plan) {
  const ir::Program& train = plan.programs[0];
  for (const DryRank& rank : dry_run(plan)) {
    const auto pp = static_cast<std::size_t>(rank.at.pp);
    const ir::MemoryPeak said = ir::memory_peak(plan, train, pp);
    const RankMemory& found = rank.memory;
    const auto persistent = [&](ir::MemoryKind kind) { return said.persistent[static_cast<std::size_t>(kind)]; };
    EXPECT_EQ(found.parameters, persistent(ir::MemoryKind::Parameters));
    EXPECT_EQ(found.masters, persistent(ir::MemoryKind::Masters));
    EXPECT_EQ(found.gradients, persistent(ir::MemoryKind::Gradients));
    EXPECT_EQ(found.optimizer, persistent(ir::MemoryKind::Optimizer));
    EXPECT_EQ(found.workspace, persistent(ir::MemoryKind::Workspace));
    EXPECT_EQ(found.communication, persistent(ir::MemoryKind::Communication));
    EXPECT_EQ(found.blocks, said.arena > 0 ? said.arena : said.pool);
    EXPECT_EQ(found.host, said.host);
    // On a CPU and on Meta host memory comes from the same allocator.
    const std::int64_t planned = found.parameters + found.masters + found.gradients + found.optimizer +
                                 found.workspace + found.blocks + found.host + ir::constant_bytes(plan, pp);
    EXPECT_GE(found.allocator_peak, planned);
    EXPECT_LE(found.allocator_peak, planned + ir::hidden_bytes(plan, pp));
  }
}

class Forecast : public testing::TestWithParam<Cell> {};

TEST_P(Forecast, IsWhatTheInterpreterTakes) {
  const auto& [schedule, reduce, zero] = GetParam();
  for (const std::string recompute : {"none", "selective", "full"})
    for (const std::string compute : {"fp32", "bf16", "fp16"})
      for (const std::string lanes : {"false", "true"})
        for (const std::string offload : {"none", "all"})
          for (const std::string micro : {"1", "2"}) {
            const std::vector<std::string> set{
                "schedule.name=" + schedule, "parallel.reduce=" + reduce, "parallel.zero=" + std::to_string(zero),
                "memory.recompute=" + recompute, "precision.compute=" + compute, "overlap.lanes=" + lanes,
                "memory.offload=" + offload, "batch.micro=" + micro};
            SCOPED_TRACE(testing::PrintToString(set));
            ASSERT_NO_THROW(expect_foretold(test::configured_plan(kModel, set)));
          }
}

// Settings that change less, each with and without lanes.
TEST_P(Forecast, FollowsTheOtherSettings) {
  const auto& [schedule, reduce, zero] = GetParam();
  const std::vector<std::vector<std::string>> others{
      {"model.tied=true"},
      {"model.dropout=0.1"},
      {"precision.reduce=bf16"},
      {"parallel.gather=forward"},
      {"parallel.dp=4", "parallel.shard=2"},
      {"parallel.dp=1"},
      {"parallel.bucket=1KiB", "overlap.prefetch=3", "overlap.slack=0", "overlap.receive_ahead=0"},
      {"memory.recompute=selective", "memory.recompute_every=2"},
      {"memory.offload=saved", "overlap.prefetch=0"},
      {"memory.offload=optimizer", "overlap.prefetch=3"},
  };
  for (std::vector<std::string> set : others)
    for (const std::string lanes : {"false", "true"}) {
      if (zero == 0 && set.back() == "parallel.shard=2") continue;  // nothing is divided
      set.insert(set.end(), {"schedule.name=" + schedule, "parallel.reduce=" + reduce,
                             "parallel.zero=" + std::to_string(zero), "overlap.lanes=" + lanes});
      SCOPED_TRACE(testing::PrintToString(set));
      ASSERT_NO_THROW(expect_foretold(test::configured_plan(kModel, set)));
    }
}

// Parameters that stay gathered, on lanes.
TEST(ForecastOnLanes, FollowsResidents) {
  for (const char* resident : {"1KiB", "20KiB", "1GiB"})
    for (const char* schedule : {"1f1b", "zb_v"}) {
      const std::vector<std::string> set{std::string("schedule.name=") + schedule, "parallel.zero=3",
                                         "overlap.lanes=true", std::string("parallel.resident=") + resident};
      SCOPED_TRACE(testing::PrintToString(set));
      ASSERT_NO_THROW(expect_foretold(test::configured_plan(kModel, set)));
    }
}

INSTANTIATE_TEST_SUITE_P(Grid, Forecast, testing::ValuesIn(cells()), [](const auto& cell) {
  return cell.param.schedule + "_zero" + std::to_string(cell.param.zero) + "_" + cell.param.reduce;
});

}  // namespace
}  // namespace fem::exec
