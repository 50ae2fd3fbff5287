// The loss scale as a state machine; what it does to a run is in test_training_precision.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/error.hpp"
#include "executor/loss_scaler.hpp"

namespace fem::exec {
namespace {

ir::Settings fp16_settings() {
  ir::Settings settings;
  settings.batch.global = 8;
  settings.batch.seq_len = 16;
  settings.precision.compute = "fp16";
  settings.precision.loss_scale = 1024;
  settings.precision.loss_scale_interval = 3;
  return settings;
}

void updates(LossScaler& scaler, int count) {
  for (int i = 0; i < count; ++i) scaler.updated();
}

TEST(LossScaler, IsOffButForFp16) {
  for (const char* compute : {"fp32", "bf16"}) {
    ir::Settings settings = fp16_settings();
    settings.precision.compute = compute;
    LossScaler scaler(settings);
    updates(scaler, 10);
    scaler.overflowed();
    scaler.restore({512, 1});
    EXPECT_FALSE(scaler.on());
    EXPECT_EQ(scaler.factor(), 1);
    EXPECT_EQ(scaler.state(), LossScale{});
  }
}

// The factor is on the sum of 8 x 16 = 128 token losses: 1024 on their mean is 8 on the sum. 100 tokens count as 128.
TEST(LossScaler, ItsFactorIsThatOfTheSum) {
  ir::Settings settings = fp16_settings();
  EXPECT_EQ(LossScaler(settings).factor(), 8);
  settings.batch.global = 4;
  settings.batch.seq_len = 25;
  EXPECT_EQ(LossScaler(settings).factor(), 8);
  settings.precision.loss_scale = 1;
  EXPECT_EQ(LossScaler(settings).factor(), 0x1p-7);
}

TEST(LossScaler, GrowsAfterAnIntervalOfUpdatesInARow) {
  LossScaler scaler(fp16_settings());
  updates(scaler, 2);
  EXPECT_EQ(scaler.scale(), 1024);
  updates(scaler, 1);
  EXPECT_EQ(scaler.scale(), 2048);
  updates(scaler, 3);
  EXPECT_EQ(scaler.scale(), 4096);
}

TEST(LossScaler, ShrinksAtOnceAndCountsAnew) {
  LossScaler scaler(fp16_settings());
  updates(scaler, 2);
  scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 512);
  updates(scaler, 2);  // not the third in a row
  EXPECT_EQ(scaler.scale(), 512);
  updates(scaler, 1);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.overflowed();
  scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 256);
}

TEST(LossScaler, StaysBetweenOneAndTwoToTheForty) {
  LossScaler scaler(fp16_settings());
  for (int i = 0; i < 20; ++i) scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 1);
  updates(scaler, 3 * 50);
  EXPECT_EQ(scaler.scale(), std::int64_t{1} << 40);
}

TEST(LossScaler, TakesItsFactorFromTheSettings) {
  ir::Settings settings = fp16_settings();
  settings.precision.loss_scale_factor = 16;
  LossScaler scaler(settings);
  scaler.overflowed();
  EXPECT_EQ(scaler.scale(), 64);
  updates(scaler, 3);
  EXPECT_EQ(scaler.scale(), 1024);
}

TEST(LossScaler, GoesOnWhereACheckpointStopped) {
  LossScaler first(fp16_settings());
  first.overflowed();
  updates(first, 2);
  LossScaler second(fp16_settings());
  second.restore(first.state());
  EXPECT_EQ(second.state(), (LossScale{512, 2}));
  second.updated();
  EXPECT_EQ(second.scale(), 1024);
  second.restore({});  // of a run in another format
  EXPECT_EQ(second.scale(), 1024);
  EXPECT_THROW(second.restore({1000, 0}), ExecutionError);
}

TEST(LossScaler, RefusesWhatIsNoPowerOfTwo) {
  ir::Settings settings = fp16_settings();
  settings.precision.loss_scale = 1000;
  EXPECT_THROW(LossScaler{settings}, ExecutionError);
}

}  // namespace
}  // namespace fem::exec
