// Whole runs in one process: fp16 with its loss scale, gradients sent in bf16, dropout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "executor/error.hpp"
#include "executor/weights/checkpoint.hpp"
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
using testing::HasSubstr;
using testing::Not;

MATCHER(SameNumber, "") {
  const auto [a, b] = arg;
  return a == b || (std::isnan(a) && std::isnan(b));
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_THAT(a.norms, testing::Pointwise(SameNumber(), b.norms));  // a skipped step has none
  EXPECT_EQ(difference(a.weights, b.weights), "");
}

void expect_close(const Outcome& a, const Outcome& b, double tolerance) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_LE(relative_error(a.losses[i], b.losses[i]), tolerance) << "step " << i;
}

ir::Settings fp16_settings() {
  ir::Settings settings = small_settings();
  settings.precision.compute = "fp16";
  return settings;
}

TEST(Fp16, TheBitsDoNotDependOnPp) {
  ir::Settings settings = fp16_settings();
  const Outcome one = train(make_plan(settings));
  for (int pp : {2, 4}) {
    settings.parallel.pp = pp;
    expect_same(train(make_plan(settings)), one);
  }
}

// A value has 11 bits where bf16 has 8: an eighth of bf16's tolerance (test_training_layouts.cpp).
TEST(Fp16, LossesStayNearThoseOfFp32) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = 2;
  const Outcome fp32 = train(make_plan(settings));
  settings.precision.compute = "fp16";
  expect_close(train(make_plan(settings)), fp32, 5e-4);
}

// A factor of a power of two is divided out again without a trace, as long as nothing overflows or vanishes: here from
// 2^12 to 2^16 on the mean, 2^5 to 2^9 on the sum of 128 token losses.
TEST(Fp16, TheScaleItselfLeavesNoTrace) {
  ir::Settings settings = fp16_settings();
  settings.precision.loss_scale = 1 << 16;
  const Outcome large = train(make_plan(settings));
  settings.precision.loss_scale = 1 << 12;
  const Outcome small = train(make_plan(settings));
  EXPECT_THAT(large.text, Not(HasSubstr("skipped")));
  expect_close(small, large, 1e-4);
  for (std::size_t i = 0; i < large.norms.size(); ++i) EXPECT_LE(relative_error(small.norms[i], large.norms[i]), 1e-3);
}

// Scales from 2^24 down overflow until the gradients fit; then the run trains as one that began with the scale found.
TEST(Fp16, BacksOffUntilGradientsFitAndGoesOn) {
  ir::Settings settings = fp16_settings();
  settings.precision.loss_scale = 1 << 26;
  settings.run.steps = 14;
  settings.parallel.pp = 2;
  settings.parallel.dp = 2;
  const Outcome backed_off = train(make_plan(settings));
  const auto skipped = static_cast<int>(backed_off.summary.skipped);
  EXPECT_GE(skipped, 1);
  EXPECT_LE(skipped, 10);
  EXPECT_EQ(backed_off.summary.updates, 14 - skipped);
  EXPECT_THAT(backed_off.text,
              HasSubstr("step 1 skipped: gradient of model.embed_tokens.weight on rank 0 (pp 0 dp 0) is not finite "
                        "(1 skipped so far; loss scale 67108864 -> 33554432)"));
  for (const double loss : backed_off.losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(backed_off.losses.back(), backed_off.losses.front() - 0.1);
}

TEST(Fp16, GoesOnWithTheScaleOfTheCheckpoint) {
  const test::TemporaryFolder folder;
  ir::Settings settings = fp16_settings();
  settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 4000);
  settings.precision.loss_scale = 1 << 26;
  settings.precision.loss_scale_interval = 4;
  settings.optimizer.decay = "constant";
  settings.run.steps = 16;
  const Outcome whole = train(make_plan(settings));
  ASSERT_GT(whole.summary.skipped, 3);

  settings.run.steps = 3;  // in the middle of the skipped ones
  RunOptions options;
  options.save = folder.path() / "save";
  options.metrics = folder.path() / "metrics.jsonl";
  train(make_plan(settings), options);
  const TrainingState state = open_checkpoint(options.save, settings, 4000, nullptr).state;
  EXPECT_EQ(state.loss_scale, (LossScale{1 << 23, 0}));
  EXPECT_EQ(state.skips_in_a_row, 3);
  settings.run.steps = 16;
  settings.precision.loss_scale = 2;  // the first of a run: not of one that goes on
  options.resume = options.save;
  const Outcome rest = train(make_plan(settings), options);
  expect_same(rest, whole);
  EXPECT_EQ(rest.summary.skipped, whole.summary.skipped);
}

// Ten in a row by default; fp32 too.
TEST(SkipLimit, IsASettingThatHoldsInEveryFormat) {
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    ir::Settings settings = small_settings();
    settings.precision.compute = compute;
    settings.optimizer.lr = 1e38;  // the second step has no finite loss, nor has any after it
    settings.optimizer.warmup_steps = 0;
    settings.run.steps = 30;
    settings.run.skip_limit = 4;
    settings.parallel.pp = 2;
    try {
      train(make_plan(settings));
      FAIL() << compute;
    } catch (const ExecutionError& error) {
      const std::string what = error.what();
      EXPECT_THAT(what, HasSubstr("step 5: 4 steps in a row were skipped (run.skip_limit); the last: loss of "
                                  "microbatch m0 on rank 1 (pp 1 dp 0) is not finite"));
      EXPECT_EQ(what.find("loss scale") != std::string::npos, std::string_view(compute) == "fp16") << what;
    }
  }
}

ir::Settings bf16_payload(int pp, int dp) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  settings.precision.reduce = "bf16";
  return settings;
}

// One member sends nothing. More change each gradient by at most 2^-9 of itself; AdamW's steps follow its sign, so that
// three steps of losses stay within a thousandth.
TEST(Bf16Payload, IsThatOfTheWireAlone) {
  ir::Settings settings = bf16_payload(2, 1);
  const Outcome one = train(make_plan(settings));
  settings.precision.reduce = "fp32";
  expect_same(one, train(make_plan(settings)));

  const Outcome four = train(make_plan(bf16_payload(1, 4)));
  settings.parallel.pp = 1;
  settings.parallel.dp = 4;
  const Outcome wide = train(make_plan(settings));
  EXPECT_EQ(four.losses[0], wide.losses[0]);
  EXPECT_NE(four.norms[0], wide.norms[0]);
  EXPECT_LE(relative_error(four.norms[0], wide.norms[0]), 0x1p-9);
  expect_close(four, wide, 1e-3);
}

TEST(Bf16Payload, TheBitsDoNotDependOnPp) {
  const Outcome one = train(make_plan(bf16_payload(1, 2)));
  for (int pp : {2, 4}) expect_same(train(make_plan(bf16_payload(pp, 2))), one);
}

ir::Settings dropping(double rate) {
  ir::Settings settings = small_settings();
  settings.model.dropout = rate;
  return settings;
}

TEST(Dropout, TheBitsDoNotDependOnPpOrTheSchedule) {
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    ir::Settings settings = dropping(0.2);
    settings.precision.compute = compute;
    const Outcome one = train(make_plan(settings));
    expect_same(train(make_plan(settings, Order::gpipe)), one);
    settings.parallel.pp = 4;
    expect_same(train(make_plan(settings)), one);
    expect_same(train(make_plan(settings, Order::split)), one);
  }
}

// Every sample has its masks wherever it is trained, so only the order of sums differs; docs/architecture.md gives the
// tolerances, test_training_layouts.cpp holds them without dropout.
TEST(Dropout, ReplicasAndMicrobatchesDropTheSame) {
  const Outcome one = train(make_plan(dropping(0.2)));
  for (int dp : {2, 4, 8}) {
    ir::Settings settings = dropping(0.2);
    settings.parallel.dp = dp;
    expect_close(train(make_plan(settings)), one, 1e-6);
  }
  for (std::int64_t micro : {2, 4}) {
    ir::Settings settings = dropping(0.2);
    settings.batch.micro = micro;
    expect_close(train(make_plan(settings)), one, 3e-6);
  }
}

// With a learning rate of 0 weights stay: what differs between the runs is what was dropped.
TEST(Dropout, ChangesTrainingAndNotEvaluation) {
  const test::TemporaryFolder folder;
  const auto run = [&](double rate) {
    ir::Settings settings = dropping(rate);
    settings.optimizer.lr = settings.optimizer.min_lr = 0;
    settings.data.eval = test::write_tokens(folder.path(), settings.model.vocab, 700, 2);
    settings.run.eval_interval = 1;
    settings.run.eval_steps = 100;
    return train(make_plan(settings));
  };
  const Outcome without = run(0), with = run(0.3), again = run(0.3);
  EXPECT_EQ(with.eval_losses, without.eval_losses);
  EXPECT_EQ(again.losses, with.losses);
  for (std::size_t i = 0; i < with.losses.size(); ++i) EXPECT_NE(with.losses[i], without.losses[i]);
}

TEST(Dropout, AResumedRunDropsAsIfItHadNotStopped) {
  const test::TemporaryFolder folder;
  ir::Settings settings = dropping(0.2);
  settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 4000);
  settings.optimizer.decay = "constant";
  settings.run.steps = 5;
  const Outcome whole = train(make_plan(settings));
  settings.run.steps = 2;
  RunOptions options;
  options.save = folder.path() / "save";
  options.metrics = folder.path() / "metrics.jsonl";
  train(make_plan(settings), options);
  settings.run.steps = 5;
  settings.parallel.pp = 2;
  options.resume = options.save;
  expect_same(train(make_plan(settings), options), whole);
}

}  // namespace
}  // namespace fem::exec
