// Whole runs in one process: what must not depend on the layout, and by how much it may.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::difference;
using test::make_plan;
using test::Order;
using test::Outcome;
using test::relative_error;
using test::small_settings;
using test::train;

ir::Settings settings_on(int pp, int dp, bool tied = false) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  settings.model.tied = tied;
  return settings;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(difference(a.weights, b.weights), "");
}

void expect_close(const Outcome& a, const Outcome& b, double loss_tolerance, double norm_tolerance) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_LE(relative_error(a.losses[i], b.losses[i]), loss_tolerance) << "step " << i;
    EXPECT_LE(relative_error(a.norms[i], b.norms[i]), norm_tolerance) << "step " << i;
  }
}

class Layouts : public testing::TestWithParam<bool> {};  // tied or not
INSTANTIATE_TEST_SUITE_P(UntiedAndTied, Layouts, testing::Bool());

TEST_P(Layouts, LossesNormsAndWeightsHaveTheSameBitsForEveryPp) {
  const Outcome one = train(make_plan(settings_on(1, 1, GetParam())));
  ASSERT_EQ(one.losses.size(), 3u);
  EXPECT_LT(one.losses[2], one.losses[0]);
  expect_same(train(make_plan(settings_on(2, 1, GetParam()))), one);
  expect_same(train(make_plan(settings_on(4, 1, GetParam()))), one);
}

TEST_P(Layouts, TheSameWithTwoReplicas) {
  const Outcome one = train(make_plan(settings_on(1, 2, GetParam())));
  expect_same(train(make_plan(settings_on(2, 2, GetParam()))), one);
  expect_same(train(make_plan(settings_on(4, 2, GetParam()))), one);
}

TEST_P(Layouts, ReplicasChangeLossesByLessThan1e6) {
  const Outcome one = train(make_plan(settings_on(1, 1, GetParam())));
  for (int dp : {2, 4, 8}) {
    const Outcome many = train(make_plan(settings_on(2, dp, GetParam())));
    expect_close(many, one, 1e-6, 2e-5);
  }
}

// Two ranks add the gradients of their copies by pieces of 2^20 elements: here a whole one and a part of one.
TEST(Training, ALargeTiedEmbeddingHasTheSameBitsOnTwoRanks) {
  ir::Settings settings = settings_on(1, 1, true);
  settings.model.vocab = 70'001;
  settings.batch.global = 2;
  settings.run.steps = 2;
  const Outcome one = train(make_plan(settings));
  settings.parallel.pp = 2;
  expect_same(train(make_plan(settings)), one);
}

TEST(Training, IsTheSameFromRunToRun) {
  const ir::Plan plan = make_plan(settings_on(2, 2));
  expect_same(train(plan), train(plan));
}

// With tied copies, too: a weight that two units share gets each of its gradients once, however the backward is split.
TEST_P(Layouts, SchedulesOfEqualBackwardOrderHaveTheSameBits) {
  for (int pp : {1, 4}) {
    const Outcome reference = train(make_plan(settings_on(pp, 1, GetParam()), Order::one_f_one_b));
    expect_same(train(make_plan(settings_on(pp, 1, GetParam()), Order::gpipe)), reference);
    expect_same(train(make_plan(settings_on(pp, 1, GetParam()), Order::split)), reference);
  }
}

TEST(Training, InBf16TheBitsDoNotDependOnPpEither) {
  ir::Settings settings = settings_on(1, 1);
  settings.precision.compute = "bf16";
  const Outcome one = train(make_plan(settings));
  settings.parallel.pp = 4;
  expect_same(train(make_plan(settings)), one);
}

TEST(Training, Bf16LossesStayNearThoseOfFp32) {
  ir::Settings settings = settings_on(2, 1);
  const Outcome fp32 = train(make_plan(settings));
  settings.precision.compute = "bf16";
  const Outcome bf16 = train(make_plan(settings));
  for (std::size_t i = 0; i < fp32.losses.size(); ++i) EXPECT_LE(relative_error(bf16.losses[i], fp32.losses[i]), 4e-3);
}

// 8 sequences as microbatches of 1, 2 and 4.
TEST(Training, TheSameBatchInOtherMicrobatchesGivesTheSameLosses) {
  ir::Settings settings = settings_on(1, 1);
  settings.run.steps = 5;
  const Outcome singles = train(make_plan(settings));
  for (std::int64_t micro : {2, 4}) {
    settings.batch.micro = micro;
    expect_close(train(make_plan(settings)), singles, 3e-6, 5e-5);
  }
}

TEST(Training, FewerMicrobatchesThanRanksRun) {
  ir::Settings settings = settings_on(1, 1);
  settings.batch.global = 2;
  const Outcome one = train(make_plan(settings));
  settings.parallel.pp = 4;
  expect_same(train(make_plan(settings)), one);
}

// Both copies are saved as one; in memory they must be equal after every step.
TEST(Training, CopiesOfATiedEmbeddingStayEqual) {
  const test::TemporaryFolder folder;
  for (int pp : {1, 2}) {
    ir::Plan plan = make_plan(settings_on(pp, 2, true));
    plan.settings.data.train = test::write_tokens(folder.path(), plan.settings.model.vocab, 4000);
    const RunOptions options;
    const RunInputs inputs = open_inputs(plan, options, true);
    std::vector<at::Tensor> embeddings(8), heads(8);
    test::on_ranks(plan.settings, [&](Communicator& comm) {
      Trainer trainer(plan, inputs, options, comm);
      trainer.run();
      const auto rank = static_cast<std::size_t>(comm.rank());
      if (const at::Tensor* w = trainer.parameters().find_weight(ir::UnitKind::embedding))
        embeddings[rank] = w->clone();
      if (const at::Tensor* w = trainer.parameters().find_weight(ir::UnitKind::head)) heads[rank] = w->clone();
    });
    int compared = 0;
    for (const at::Tensor& e : embeddings)
      for (const at::Tensor& h : heads)
        if (e.defined() && h.defined()) {
          EXPECT_TRUE(test::same_bits(e, h)) << pp;
          ++compared;
        }
    EXPECT_EQ(compared, 4) << pp;  // two replicas of each copy
  }
}

// A parameter that no reduction reached would drift by a little more every step.
TEST(Training, ReplicasDoNotDriftOverManySteps) {
  ir::Settings settings = settings_on(1, 1);
  settings.run.steps = 60;
  settings.optimizer.lr = 3e-3;
  const Outcome one = train(make_plan(settings));
  settings.parallel.dp = 4;
  const Outcome four = train(make_plan(settings));
  expect_close(four, one, 1e-5, 1e-3);
  EXPECT_LT(four.losses.back(), four.losses.front() - 0.3);
}

TEST(Training, EvaluatesInBetweenAndAtTheEndWithoutTouchingTheRun) {
  const test::TemporaryFolder folder;
  ir::Settings settings = settings_on(2, 2);
  const Outcome plain = train(make_plan(settings));
  settings.data.eval = test::write_tokens(folder.path(), settings.model.vocab, 700, 2);
  settings.run.eval_interval = 2;
  settings.run.eval_steps = 100;  // more batches than there are: all of them
  const Outcome evaluated = train(make_plan(settings));
  expect_same(evaluated, plain);
  ASSERT_EQ(evaluated.eval_losses.size(), 2u);  // after step 2, and after the last
  settings.parallel = {};
  EXPECT_EQ(train(make_plan(settings)).eval_losses.size(), 2u);
  EXPECT_NEAR(train(make_plan(settings)).eval_losses[1], evaluated.eval_losses[1], 1e-6 * evaluated.eval_losses[1]);
}

// The loss of the untrained model on uniform targets is close to log(vocab).
TEST(Training, FirstLossIsThatOfAnUntrainedModel) {
  ir::Settings settings = settings_on(2, 1);
  settings.model.init_std = 0.02;
  EXPECT_NEAR(train(make_plan(settings)).losses[0], std::log(61.0), 0.02);
}

}  // namespace
}  // namespace fem::exec
