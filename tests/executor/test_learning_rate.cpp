#include "executor/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace fem::exec {
namespace {

ir::Settings settings(const char* decay) {
  ir::Settings s;
  s.optimizer.lr = 1.0;
  s.optimizer.min_lr = 0.2;
  s.optimizer.warmup_steps = 4;
  s.optimizer.decay = decay;
  s.run.steps = 12;
  return s;
}

TEST(LearningRate, WarmsUpLinearlyAndReachesThePeakAtTheLastWarmUpStep) {
  for (int step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(learning_rate(settings("cosine"), step), 0.25 * (step + 1));
  EXPECT_DOUBLE_EQ(learning_rate(settings("cosine"), 4), 1.0);
}

TEST(LearningRate, CosineIsHalfWayInTheMiddleAndEndsAtTheMinimum) {
  EXPECT_DOUBLE_EQ(learning_rate(settings("cosine"), 6), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2);  // cos(pi / 4)
  EXPECT_DOUBLE_EQ(learning_rate(settings("cosine"), 8), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(settings("cosine"), 12), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(settings("cosine"), 50), 0.2);
}

TEST(LearningRate, LinearAndConstant) {
  EXPECT_DOUBLE_EQ(learning_rate(settings("linear"), 6), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(settings("linear"), 11), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(settings("constant"), 11), 1.0);
}

TEST(LearningRate, WithoutWarmUpStartsAtThePeak) {
  ir::Settings s = settings("cosine");
  s.optimizer.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 1.0);
}

TEST(LearningRate, WarmUpAsLongAsTheRunOrLonger) {
  ir::Settings s = settings("cosine");
  s.optimizer.warmup_steps = 12;
  EXPECT_DOUBLE_EQ(learning_rate(s, 11), 1.0);
  s.optimizer.warmup_steps = 24;
  EXPECT_DOUBLE_EQ(learning_rate(s, 11), 0.5);
}

}  // namespace
}  // namespace fem::exec
