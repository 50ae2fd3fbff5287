// Whole runs in one process where a rank holds more than one stage: both ends of a V, and replicas for two directions.
#include <gtest/gtest.h>

#include <array>
#include <mutex>

#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using fem::test::Placement;
using test::make_placed_plan;
using test::make_plan;
using test::Outcome;
using test::small_settings;
using test::train;

ir::Settings settings_on(int pp, int dp, bool tied) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  settings.model.tied = tied;
  settings.batch.global = 8 * dp;
  return settings;
}

// Any order, of whole and of split backwards; with an odd pp the middle rank holds both replicas of its stage.
ir::Plan two_way_plan(const ir::Settings& settings, std::uint32_t seed) {
  const int p = static_cast<int>(settings.parallel.pp), m = static_cast<int>(ir::microbatches(settings));
  return make_placed_plan(settings, Placement::Bidirectional,
                          fem::test::random_order(seed, Placement::Bidirectional, p, 1, m, seed % 2, false));
}

void expect_close(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_LE(test::relative_error(a.losses[i], b.losses[i]), 1e-6) << "step " << i;
    EXPECT_LE(test::relative_error(a.norms[i], b.norms[i]), 2e-5) << "step " << i;
  }
  ASSERT_EQ(a.weights.size(), b.weights.size());
}

class TwoDirections : public testing::TestWithParam<std::tuple<int, int, bool>> {};  // pp, dp, tied

TEST_P(TwoDirections, LearnWhatOneDirectionLearns) {
  const auto& [pp, dp, tied] = GetParam();
  const Outcome one = train(make_plan(settings_on(1, dp, tied)));
  for (std::uint32_t seed : {1u, 2u}) expect_close(train(two_way_plan(settings_on(pp, dp, tied), seed)), one);
}

// Masters, moments and working copies of all replicas of a parameter after three steps, over directions and over dp.
TEST_P(TwoDirections, ReplicasStayEqualToTheLastBit) {
  const auto& [pp, dp, tied] = GetParam();
  const test::TemporaryFolder folder;
  ir::Settings settings = settings_on(pp, dp, tied);
  settings.precision.compute = "bf16";
  settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 4000);
  const ir::Plan plan = two_way_plan(settings, 5);
  const RunOptions options;
  const RunInputs inputs = open_inputs(plan, options, true);
  std::mutex mutex;
  std::map<std::int64_t, std::vector<std::array<at::Tensor, 4>>> units;  // of the model
  test::on_ranks(plan, [&](Communicator& comm) {
    Trainer trainer(plan, inputs, options, comm);
    trainer.run();
    std::lock_guard lock(mutex);
    for (const StageParameters& stage : trainer.parameters().stages())
      for (const UnitParameters& unit : stage.units)
        units[unit.unit].push_back(
            {unit.master.clone(), unit.compute.clone(), unit.exp_avg.clone(), unit.exp_avg_sq.clone()});
  });
  EXPECT_EQ(static_cast<std::int64_t>(units.size()), ir::unit_count(settings));
  for (const auto& [unit, replicas] : units) {
    ASSERT_EQ(replicas.size(), static_cast<std::size_t>(2 * dp)) << "unit " << unit;
    for (const auto& replica : replicas)
      for (std::size_t i = 0; i < replica.size(); ++i)
        EXPECT_TRUE(test::same_bits(replica[i], replicas[0][i])) << "unit " << unit << ", buffer " << i;
  }
  if (!tied) return;
  const auto& embedding = units.begin()->second[0][0];
  const auto& head = units.rbegin()->second[0][0];
  const std::int64_t n = settings.model.vocab * settings.model.hidden;
  const ir::UnitDims dims = ir::unit_dims(settings);
  const std::int64_t at = flat_elements(ir::UnitKind::head, dims) - (n + 31) / 32 * 32;  // the weight is its last row
  EXPECT_TRUE(test::same_bits(embedding.narrow(0, 0, n).contiguous(), head.narrow(0, at, n).contiguous()));
}

INSTANTIATE_TEST_SUITE_P(Meshes, TwoDirections,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Values(1, 2), testing::Bool()));

TEST(TwoDirections, TheLossesComeFromBothEnds) {
  ir::Settings settings = settings_on(2, 1, false);
  settings.batch.global = 4;
  settings.run.steps = 1;
  const Outcome two = train(make_placed_plan(settings, Placement::Bidirectional, fem::test::dualpipe(2, 4)));
  settings.parallel.pp = 1;
  EXPECT_EQ(two.losses, train(make_plan(settings)).losses);  // before any update: summed by microbatch, the same bits
}

// Embedding and head on the first rank of several: one sum of two accumulators, as on one rank or on two.
TEST(PlacementV, TiedCopiesOnOneRankHaveTheBitsOfTwoRanks) {
  ir::Settings settings = settings_on(2, 2, true);
  settings.batch.global = 8;  // 4 microbatches
  const Outcome loop = train(make_plan(settings));
  const Outcome v = train(make_placed_plan(settings, Placement::V, fem::test::zb_v_2_4()));
  EXPECT_EQ(v.losses, loop.losses);
  EXPECT_EQ(v.norms, loop.norms);
  EXPECT_EQ(test::difference(v.weights, loop.weights), "");
}

}  // namespace
}  // namespace fem::exec
