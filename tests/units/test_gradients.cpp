// Every unit's forward, input gradient and weight gradients against autograd in fp64.
#include <gtest/gtest.h>

#include "support.hpp"

namespace fem::exec::test {
namespace {

// Relative to the largest entry. fp32: 24-bit significands through at most a dozen chained sums. bf16: 8 bits; a value
// is rounded by 2^-9 at up to ten places on its way, and sums of both signs (a norm's gradient) cancel down to a
// fraction of their terms. fp16: the same with 11 bits.
double tolerance(const Shape& shape) {
  const std::string_view compute = shape.compute;
  return compute == "fp32" ? 1e-5 : compute == "bf16" ? 6 * 0x1p-8 : 6 * 0x1p-11;
}

class Gradients : public ::testing::TestWithParam<Shape> {
 protected:
  void compare(std::int64_t unit, const Inputs& in) { compare(GetParam(), unit, in, {}); }

  // Of results with a loss scale every gradient holds its multiple.
  void compare(const Shape& shape, std::int64_t unit, const Inputs& in, const CallContext& context) {
    auto got = run_unit(shape, unit, in, choose_arithmetic(compute_type(settings_of(shape))), context);
    const auto want = reference(shape, unit, in, context);
    const auto limit = tolerance(shape);
    for (auto& grad : got.grads) grad.div_(context.loss_scale);
    if (got.dx.defined()) got.dx.div_(context.loss_scale);
    ASSERT_EQ(got.y.defined(), want.y.defined());
    if (want.y.defined()) {
      EXPECT_LE(relative_error(got.y, want.y), limit) << "forward";
    }
    ASSERT_EQ(got.dx.defined(), want.dx.defined());
    if (want.dx.defined()) {
      EXPECT_EQ(got.dx.scalar_type(), in.x.scalar_type());
      EXPECT_LE(relative_error(got.dx, want.dx), limit) << "input gradient";
    }
    for (std::size_t i = 0; i < want.grads.size(); ++i)
      EXPECT_LE(relative_error(got.grads[i], want.grads[i]), limit) << "gradient of parameter " << i;
    EXPECT_EQ(got.loss.tokens, want.loss.tokens);
    EXPECT_NEAR(got.loss.loss, want.loss.loss, limit * std::abs(want.loss.loss));
  }
};

TEST_P(Gradients, Embedding) {
  auto in = inputs_of(GetParam(), kEmbedding);
  in.batch.tokens.view(-1).slice(0, 0, std::nullopt, 3).fill_(1);  // a repeated token gathers several rows
  compare(kEmbedding, in);
}

TEST_P(Gradients, Block) { compare(kBlock, inputs_of(GetParam(), kBlock)); }

TEST_P(Gradients, Head) { compare(kHead, inputs_of(GetParam(), kHead)); }

TEST_P(Gradients, HeadWithIgnoredTargets) {
  auto in = inputs_of(GetParam(), kHead);
  in.batch.targets.view(-1).slice(0, 0, std::nullopt, 3).fill_(kIgnoredTarget);
  compare(kHead, in);
}

// Each microbatch begins where the one before it ended, here at an element that is no multiple of the generator's four.
TEST_P(Gradients, WithDropout) {
  auto shape = GetParam();
  shape.dropout = 0.3;
  for (const auto unit : {kEmbedding, kBlock})
    compare(shape, unit, inputs_of(shape, unit), {.train = true, .step = 7, .sample = 3});
}

// In fp16 alone: other formats have no loss scale.
class ScaledGradients : public Gradients {};

TEST_P(ScaledGradients, HeadWithALossScale) {
  compare(GetParam(), kHead, inputs_of(GetParam(), kHead), {.loss_scale = 4096});
}

const Shape kShapes[] = {
    {},
    {.kv_heads = 2},
    {.kv_heads = 1},
    {.micro = 3, .seq_len = 33, .hidden = 64, .intermediate = 96, .heads = 4, .kv_heads = 2, .head_dim = 16},
    {.micro = 1, .seq_len = 130, .hidden = 30, .intermediate = 17, .heads = 3, .kv_heads = 3, .head_dim = 20,
     .vocab = 5},
    {.micro = 1, .seq_len = 1, .hidden = 8, .intermediate = 8, .heads = 2, .kv_heads = 1, .head_dim = 2, .vocab = 2},
};

std::string shape_name(const ::testing::TestParamInfo<Shape>& info) { return describe(info.param); }

std::vector<Shape> in_format(const char* compute) {
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  for (auto& shape : shapes) shape.compute = compute;
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(Fp32, Gradients, ::testing::ValuesIn(in_format("fp32")), shape_name);
INSTANTIATE_TEST_SUITE_P(Bf16, Gradients, ::testing::ValuesIn(in_format("bf16")), shape_name);
INSTANTIATE_TEST_SUITE_P(Fp16, Gradients, ::testing::ValuesIn(in_format("fp16")), shape_name);
INSTANTIATE_TEST_SUITE_P(Fp16, ScaledGradients, ::testing::ValuesIn(in_format("fp16")), shape_name);

}  // namespace
}  // namespace fem::exec::test
