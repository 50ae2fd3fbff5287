#include <gtest/gtest.h>

#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "executor/error.hpp"
#include "executor/units/cross_entropy.hpp"
#include "support.hpp"

namespace fem::exec::test {
namespace {

at::Tensor ids(std::vector<std::int64_t> values) {
  auto t = at::zeros({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<std::int64_t>());
  return t;
}

struct CrossEntropyOutput {
  LossSum sum;
  at::Tensor lse;
};

// Runs one recorded direction on memory of its own. `rows` at a time: 3 leaves a smaller block at the end.
std::int64_t scratch_bytes(const at::Tensor& logits, std::int64_t rows) {
  return ir::aligned(4 * rows * logits.size(1)) + ir::aligned(4 * rows);
}

CrossEntropyOutput cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets, std::int64_t rows = 3) {
  rows = std::min(rows, logits.size(0));
  const auto bytes = scratch_bytes(logits, rows);
  const Guarded memory(bytes);
  const Window window(bytes);
  window.place(memory.data());
  Sequence s(window, bytes);
  CrossEntropyOutput result{{}, at::zeros({logits.size(0)}, at::kFloat)};
  exec::cross_entropy_forward(s, {logits, targets, result.lse, rows}, &result.sum);
  s.run();
  EXPECT_TRUE(memory.untouched_around());
  return result;
}

void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& lse, const at::Tensor& targets,
                            float loss_scale = 1) {
  const CallContext context{.loss_scale = loss_scale};
  const auto bytes = logits.scalar_type() == at::kFloat ? 0 : scratch_bytes(logits, 3);
  const Guarded memory(bytes);
  const Window window(bytes);
  window.place(memory.data());
  Sequence s(window, bytes);
  exec::cross_entropy_backward(s, {logits, targets, lse, std::min<std::int64_t>(3, logits.size(0))}, context);
  s.run();
}

// Equal logits: every token costs log(vocab), and the gradient is 1/vocab, less 1 at the target.
TEST(CrossEntropy, EqualLogitsCostTheLogarithmOfTheVocabulary) {
  for (const std::int64_t vocab : {1, 2, 7, 257, 1000}) {
    const auto logits = at::full({3, vocab}, 5.0f);
    const auto targets = ids({0, vocab - 1, kIgnoredTarget});
    const auto out = cross_entropy_forward(logits, targets);
    EXPECT_EQ(out.sum.tokens, 2);
    EXPECT_NEAR(out.sum.loss, 2 * std::log(static_cast<double>(vocab)), 2e-6);
    cross_entropy_backward(logits, out.lse, targets);
    EXPECT_NEAR(logits[0][0].item<float>(), 1.0 / static_cast<double>(vocab) - 1, 1e-6);
    EXPECT_NEAR(logits[1][0].item<float>(), 1.0 / static_cast<double>(vocab) - (vocab == 1), 1e-6);
    EXPECT_EQ(logits[2].abs().max().item<float>(), 0);
  }
}

// softmax of {1000, 0} is {1, e^-1000}: no overflow, and the loss of the second is their difference.
TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  auto logits = at::zeros({2, 2}, at::kFloat);
  logits.select(1, 0).fill_(1000);
  EXPECT_EQ(cross_entropy_forward(logits, ids({1, 0})).sum.loss, 1000.0);
}

// Losses of the valid tokens alone enter, unweighted: one sum of 6 tokens equals the sums of 5 and of 1.
TEST(CrossEntropy, UnequalMicrobatchesAddUp) {
  const auto logits = at::randn({8, 11}, at::kFloat);
  const std::vector<std::int64_t> target = {1, 2, 3, 4, 10, kIgnoredTarget, kIgnoredTarget, 0};
  const auto whole = cross_entropy_forward(logits, ids(target)).sum;
  const auto first_ids = ids({target.begin(), target.begin() + 4});
  const auto second_ids = ids({target.begin() + 4, target.end()});
  const auto first = cross_entropy_forward(logits.narrow(0, 0, 4).contiguous(), first_ids).sum;
  const auto second = cross_entropy_forward(logits.narrow(0, 4, 4).contiguous(), second_ids).sum;
  EXPECT_EQ(whole.tokens, 6);
  EXPECT_EQ(first.tokens, 4);
  EXPECT_EQ(second.tokens, 2);
  EXPECT_NEAR(whole.loss, first.loss + second.loss, 1e-6 * whole.loss);
}

// softmax of {0, 18} gives the first e^-18 = 1.5e-8, less than half of fp16's least number, 2^-24. Its 2^12-fold,
// 6.2e-5, has all 11 bits. fp32 needs no scale and is left alone.
TEST(CrossEntropy, ALossScaleKeepsSmallGradientsInFp16) {
  const auto gradient = [](at::ScalarType type, float scale) {
    auto logits = at::zeros({1, 2}, at::kFloat);
    logits.select(1, 1).fill_(18);
    logits = logits.to(type);
    const auto out = cross_entropy_forward(logits, ids({1}));
    cross_entropy_backward(logits, out.lse, ids({1}), scale);
    return logits[0][0].item<double>();
  };
  EXPECT_EQ(gradient(at::kHalf, 1), 0);
  EXPECT_NEAR(gradient(at::kHalf, 4096) / 4096 / std::exp(-18.0), 1, 0x1p-10);
  EXPECT_NEAR(gradient(at::kFloat, 4096) / std::exp(-18.0), 1, 1e-5);
}

TEST(CrossEntropy, ATargetOutsideTheVocabularyIsNamed) {
  const auto logits = at::zeros({2, 5}, at::kFloat);
  for (const std::int64_t bad : {5, -1, -99}) {
    try {
      cross_entropy_forward(logits, ids({0, bad}));
      FAIL() << bad;
    } catch (const ExecutionError& e) {
      const std::string what = e.what();
      EXPECT_NE(what.find("target " + std::to_string(bad) + " at token 1"), std::string::npos) << what;
      EXPECT_NE(what.find("vocabulary of 5"), std::string::npos) << what;
    }
  }
}

TEST(CrossEntropy, AllTargetsIgnoredGiveExactZeros) {
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    const Shape shape{.compute = compute};
    auto in = inputs_of(shape, kHead);
    in.batch.targets.fill_(kIgnoredTarget);
    const auto r = run_unit(shape, kHead, in);
    EXPECT_EQ(r.loss.loss, 0);
    EXPECT_EQ(r.loss.tokens, 0);
    EXPECT_EQ(r.dx.to(at::kFloat).abs().max().item<float>(), 0);
    for (const auto& grad : r.grads) EXPECT_EQ(grad.abs().max().item<float>(), 0);
  }
}

}  // namespace
}  // namespace fem::exec::test
