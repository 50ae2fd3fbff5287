#include "executor/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <ATen/ops/from_blob.h>

#include "executor/error.hpp"
#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::on_ranks;
using testing::HasSubstr;

struct Contribution {
  int pp, dp, m;
  LossSum loss;
};

// What all ranks of a pp x dp mesh find when the last stage of each pipeline holds the losses.
StepMetrics reduce_on(int pp, int dp, int microbatches, std::span<const Contribution> contributions,
                      int stopping = -1) {
  ir::Settings settings = test::small_settings();
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  const Topology topology(settings);
  std::vector<StepMetrics> found(static_cast<std::size_t>(pp * dp));
  on_ranks(settings, [&](Communicator& comm) {
    LossReduction losses(microbatches, pp, dp);
    losses.reset();
    for (const Contribution& c : contributions)
      if (topology.rank({c.pp, c.dp, 0, 0}) == comm.rank()) losses.loss(c.m) = c.loss;
    found[static_cast<std::size_t>(comm.rank())] = losses.reduce(comm, 5, 77, comm.rank() == stopping);
  });
  for (const StepMetrics& metrics : found) {
    EXPECT_EQ(metrics.loss_sum, found[0].loss_sum);
    EXPECT_EQ(metrics.tokens, found[0].tokens);
    EXPECT_EQ(metrics.stop, found[0].stop);
  }
  return found[0];
}

// Token losses {4} and {0, 0, 0}: 4 / 4 = 1, where the mean of means would be 2.
TEST(LossReduction, IsTheSumOverTokensNotTheMeanOfMeans) {
  const Contribution microbatches[] = {{0, 0, 0, {4, 1}}, {0, 0, 1, {0, 3}}};
  EXPECT_EQ(reduce_on(1, 1, 2, microbatches).loss(), 1.0);
  const Contribution replicas[] = {{1, 0, 0, {4, 1}}, {1, 1, 0, {0, 3}}};
  EXPECT_EQ(reduce_on(2, 2, 1, replicas).loss(), 1.0);
}

TEST(LossReduction, ARankWithoutValidTokensAddsNothing) {
  const Contribution losses[] = {{0, 0, 0, {6, 3}}, {0, 1, 0, {0, 0}}};
  EXPECT_EQ(reduce_on(1, 2, 1, losses).loss(), 2.0);
}

TEST(LossReduction, NoValidTokenAtAllIsSeenByAll) {
  const StepMetrics metrics = reduce_on(2, 2, 2, {});
  EXPECT_EQ(metrics.tokens, 0);
  EXPECT_EQ(metrics.loss_sum, 0.0);
}

// 1e16 + 1 - 1e16 depends on the order: replicas outside, microbatches inside, whatever the pipeline.
TEST(LossReduction, SumsInOneFixedOrder) {
  std::vector<double> found;
  for (int pp : {1, 2, 4}) {
    const int last = pp - 1;
    const Contribution losses[] = {
        {last, 1, 0, {-1e16, 1}}, {last, 0, 1, {1, 1}}, {last, 0, 0, {1e16, 1}}, {last, 1, 1, {3, 1}}};
    found.push_back(reduce_on(pp, 2, 2, losses).loss_sum);
  }
  EXPECT_EQ(found[0], ((1e16 + 1) + -1e16) + 3);
  EXPECT_EQ(found[1], found[0]);
  EXPECT_EQ(found[2], found[0]);
}

TEST(LossReduction, OneRankThatIsAskedToStopStopsAll) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(reduce_on(2, 2, 1, {}, rank).stop) << rank;
  EXPECT_FALSE(reduce_on(2, 2, 1, {}).stop);
}

// Runs two pipeline ranks of which one differs; gives the error.
std::string error_of(const std::function<StepMetrics(LossReduction&, Communicator&)>& body) {
  ir::Settings settings = test::small_settings();
  settings.parallel.pp = 2;
  try {
    on_ranks(settings, [&](Communicator& comm) {
      LossReduction losses(2, 2, 1);
      losses.reset();
      body(losses, comm);
    });
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LossReduction, RefusesAMicrobatchWhoseStagesReadDifferentSamples) {
  const std::string error = error_of([](LossReduction& losses, Communicator& comm) {
    if (comm.rank() == 0) {
      losses.first_stage_read(0, 11);
      losses.first_stage_read(1, 12);
    } else {
      losses.last_stage_read(0, 11);
      losses.last_stage_read(1, 13);
    }
    return losses.reduce(comm, 0, 0, false);
  });
  EXPECT_THAT(error, HasSubstr("read different samples for microbatch m1"));
}

TEST(LossReduction, RefusesRanksThatAreNotAtTheSameStep) {
  const std::string error = error_of(
      [](LossReduction& losses, Communicator& comm) { return losses.reduce(comm, 3 + comm.rank(), 0, false); });
  EXPECT_THAT(error, HasSubstr("rank 0 and rank 1 are at steps 3 and 4"));
}

TEST(LossReduction, RefusesReplicasThatHaveDriftedApart) {
  const std::string error = error_of([](LossReduction& losses, Communicator& comm) {
    return losses.reduce(comm, 3, 100u + static_cast<unsigned>(comm.rank()), false);
  });
  EXPECT_THAT(error, HasSubstr("rank 0 and rank 1 found different gradient norms"));
}

// On the rank of the last stage, in the pipeline of the replica.
TEST(LossReduction, NamesTheLossThatIsNotFiniteAndItsRank) {
  ir::Settings settings = test::small_settings();
  settings.parallel.pp = settings.parallel.dp = 2;
  on_ranks(settings, [&](Communicator& comm) {
    const Topology topology(settings);
    LossReduction losses(3, 2, 2);
    for (int m = 0; m < 3; ++m) {
      if (topology.coordinates(comm.rank()).pp == 0) losses.first_stage_read(m, 5);
      if (topology.coordinates(comm.rank()).pp == 1) losses.last_stage_read(m, 5);
    }
    if (comm.rank() == 3) losses.loss(1) = {std::numeric_limits<double>::infinity(), 4};
    EXPECT_FALSE(std::isfinite(losses.reduce(comm, 0, 0, false).loss_sum));
    EXPECT_EQ(losses.not_finite(topology), "loss of microbatch m1 on rank 3 (pp 1 dp 1)");
  });
}

TEST(HashMicrobatch, ChangesWithEveryTokenAndTarget) {
  std::int64_t tokens[4] = {1, 2, 3, 4}, targets[4] = {2, 3, 4, -100};
  const Microbatch batch{at::from_blob(tokens, {1, 4}, at::kLong), at::from_blob(targets, {1, 4}, at::kLong)};
  const std::uint64_t before = hash_microbatch(batch);
  EXPECT_EQ(hash_microbatch(batch), before);
  for (std::int64_t* values : {tokens, targets})
    for (int i = 0; i < 4; ++i) {
      ++values[i];
      EXPECT_NE(hash_microbatch(batch), before);
      --values[i];
    }
  std::swap(tokens[0], tokens[1]);
  EXPECT_NE(hash_microbatch(batch), before);
}

}  // namespace
}  // namespace fem::exec
