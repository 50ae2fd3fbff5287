// The generator, the masks, and what units do with them beside their gradients (test_gradients.cpp).
#include <gtest/gtest.h>

#include <cmath>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "executor/error.hpp"
#include "executor/units/dropout.hpp"
#include "executor/units/philox.hpp"
#include "support.hpp"

namespace fem::exec::test {
namespace {

// The known answers that come with Random123, the library of the paper's authors: tests/kat_vectors, "philox4x32 10".
TEST(Philox, HasThePublishedValues) {
  constexpr std::uint32_t kAll = 0xffffffff;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({kAll, kAll, kAll, kAll}, {kAll, kAll}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// drop(1, 1, ...) of a microbatch.
at::Tensor mask(const DropoutSite& site, const CallContext& context, std::int64_t samples) {
  const auto x = at::full({samples, site.sample_elements}, 1.0f);
  const auto y = at::zeros(x.sizes(), at::kFloat);
  Dropout(site, context).apply(x, y);
  return y;
}

// A million draws: the share that is kept is within five standard deviations, sqrt(p (1 - p) / n), of 1 - p.
TEST(Dropout, KeepsTheShareAndItsExpectation) {
  for (const double rate : {0.0625, 0.1, 0.5, 0.9}) {
    const std::int64_t n = 1'000'000;
    const auto y = mask({rate, 3, 5, n}, {.train = true, .step = 1}, 1);
    const auto kept = y.ne(0).sum().item<std::int64_t>();
    EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(n), 1 - rate,
                5 * std::sqrt(rate * (1 - rate) / static_cast<double>(n)));
    const auto factor = static_cast<float>(1 / (1 - rate));
    EXPECT_EQ(y.eq(factor).sum().item<std::int64_t>(), kept) << "a kept element is another multiple";
  }
}

TEST(Dropout, WithoutTrainingOrRateNothingIsDropped) {
  EXPECT_TRUE(mask({0.5, 3, 5, 1000}, {.train = false}, 2).eq(1).all().item<bool>());
  EXPECT_TRUE(mask({0.0, 3, 5, 1000}, {.train = true}, 2).eq(1).all().item<bool>());
  const CallContext training{.train = true};
  EXPECT_FALSE(Dropout({0.0, 3, 5, 1000}, training).configured());
  EXPECT_THROW(Dropout({1.0, 3, 5, 1000}, training), ExecutionError);
}

// The place in the global batch decides, not the microbatch: 6 samples at once, by threes, in pairs, and one by one.
// With 107 elements a sample most begin at no multiple of the generator's four words.
TEST(Dropout, DoesNotDependOnTheMicrobatch) {
  const DropoutSite site{0.4, 11, 6, 107};
  const auto whole = mask(site, {.train = true, .step = 9, .sample = 10}, 6);
  for (const std::int64_t size : {1, 2, 3}) {
    Tensors parts;
    for (std::int64_t at = 0; at < 6; at += size)
      parts.push_back(mask(site, {.train = true, .step = 9, .sample = 10 + at}, size));
    EXPECT_TRUE(same_bits(at::cat(parts), whole)) << size;
  }
}

// Two masks that have nothing to do with each other agree on p^2 + (1-p)^2 = 1/2 of the elements.
TEST(Dropout, DiffersBySeedStepSiteAndSample) {
  const std::int64_t n = 100'000;
  const CallContext context{.train = true, .step = 5, .sample = 2};
  const auto base = mask({0.5, 7, 8, n}, context, 1);
  const at::Tensor others[] = {
      mask({0.5, 6, 8, n}, context, 1),
      mask({0.5, 7 + (std::uint64_t{1} << 32), 8, n}, context, 1),
      mask({0.5, 7, 9, n}, context, 1),
      mask({0.5, 7, 8, n}, {.train = true, .step = 6, .sample = 2}, 1),
      mask({0.5, 7, 8, n}, {.train = true, .step = 5, .sample = 3}, 1),
  };
  for (const auto& other : others)
    EXPECT_NEAR(static_cast<double>(base.eq(other).sum().item<std::int64_t>()) / n, 0.5, 5 * 0.5 / std::sqrt(n));
}

class DroppingUnits : public ::testing::TestWithParam<std::tuple<std::int64_t, const char*>> {
 protected:
  std::int64_t unit() const { return std::get<0>(GetParam()); }
  Shape shape(double dropout) const { return {.kv_heads = 2, .compute = std::get<1>(GetParam()), .dropout = dropout}; }
  static constexpr CallContext kTraining{.train = true, .step = 3, .sample = 5};
};

// A forward outside training has the bits of a model without dropout.
TEST_P(DroppingUnits, EvaluateWithoutDropping) {
  const auto in = inputs_of(shape(0), unit());
  const auto arithmetic = choose_arithmetic(compute_type(settings_of(shape(0))));
  const auto plain = run_unit(shape(0), unit(), in, arithmetic);
  const auto evaluated = run_unit(shape(0.3), unit(), in, arithmetic);
  EXPECT_TRUE(same_bits(evaluated.y, plain.y));
  EXPECT_TRUE(same_bits(evaluated.dx, plain.dx));
  for (std::size_t i = 0; i < plain.grads.size(); ++i) EXPECT_TRUE(same_bits(evaluated.grads[i], plain.grads[i]));
  EXPECT_FALSE(same_bits(run_unit(shape(0.3), unit(), in, arithmetic, kTraining).y, plain.y));
}

// The masks are made anew: what was freed comes back with the bits that it had.
TEST_P(DroppingUnits, RecomputeTheSameBits) {
  const auto in = inputs_of(shape(0.3), unit());
  const auto arithmetic = choose_arithmetic(compute_type(settings_of(shape(0))));
  const auto full = run_unit(shape(0.3), unit(), in, arithmetic, kTraining);
  const auto grads = zero_grads(in);
  Unit own(settings_of(shape(0.3)), unit(), in.params, grads, arithmetic);
  for (const auto what : {Recompute::everything, Recompute::cheap}) {
    if (what == Recompute::cheap && !ir::saved_w_is_cheap(own.kind())) continue;
    const Blocks blocks(shape(0.3), unit(), in);
    own.forward(blocks.at_discarding(what == Recompute::cheap), in.batch, nullptr, kTraining);
    EXPECT_TRUE(same_bits(blocks.output(), full.y));
    // Another microbatch in between leaves nothing behind.
    own.forward(Blocks(shape(0.3), unit(), in).at_discarding(), in.batch, nullptr, {.train = true, .sample = 7});
    own.recompute(blocks.at(ir::Phase::forward), in.batch, what, kTraining);
    const auto saved = blocks.saved_tensors();
    for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_TRUE(same_bits(saved[i], full.saved[i])) << "slot " << i;
    own.backward_input(blocks.at(ir::Phase::backward_input), kTraining);
    EXPECT_TRUE(same_bits(blocks.grad_input(), full.dx));
    for (const auto& grad : grads) grad.zero_();
    own.backward_weight(blocks.at(ir::Phase::backward_weight), kTraining);
    for (std::size_t i = 0; i < grads.size(); ++i) EXPECT_TRUE(same_bits(grads[i], full.grads[i])) << "gradient " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Units, DroppingUnits,
                         ::testing::Combine(::testing::Values(kEmbedding, kBlock),
                                            ::testing::Values("fp32", "bf16", "fp16")));

}  // namespace
}  // namespace fem::exec::test
