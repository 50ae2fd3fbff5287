// Rotary table, product arithmetic, scratch and initial values.
#include <gtest/gtest.h>

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "executor/error.hpp"
#include "executor/units/init.hpp"
#include "executor/units/linear.hpp"
#include "executor/units/rotary.hpp"
#include "support.hpp"

namespace fem::exec::test {
namespace {

// Records one call on scratch of its own and runs it.
template <class Record>
void run(Record record) {
  const std::int64_t bytes = 1 << 16;
  const Guarded memory(bytes);
  const Window window(bytes);
  window.place(memory.data());
  Sequence s(window, bytes);
  record(s);
  s.run();
}

// The vector (1, 0) at position p becomes (cos p, sin p). Angles kept in half precision would be off by up to 0.78.
TEST(Rotary, AnglesAreExactAtLongPositionsInAnyFormat) {
  const std::int64_t positions = 8192;
  const Rotary rotary(positions, 4, 10000);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    auto x = at::zeros({1, positions, 1, 4}, type);
    x.select(-1, 0).fill_(1);  // pair 0: frequency 1
    run([&](Sequence& s) { rotary.forward(s, x); });
    const auto y = x.to(at::kDouble);
    const double limit = type == at::kFloat ? 1e-7 : 0x1p-9;
    for (const std::int64_t p : {0, 1, 100, 4097, 8191}) {
      EXPECT_NEAR(y[0][p][0][0].item<double>(), std::cos(static_cast<double>(p)), limit);
      EXPECT_NEAR(y[0][p][0][2].item<double>(), std::sin(static_cast<double>(p)), limit);
    }
  }
}

TEST(Rotary, BackwardTurnsBack) {
  const Rotary rotary(50, 8, 500);
  const auto x = at::randn({2, 50, 3, 8}, at::kFloat);
  const auto y = x.clone();
  run([&](Sequence& s) { rotary.forward(s, y); });
  EXPECT_GT(relative_error(y, x), 0.1);
  run([&](Sequence& s) { rotary.backward(s, y); });
  EXPECT_LE(relative_error(y, x), 1e-6);
}

TEST(Rotary, AnOddHeadIsRefused) { EXPECT_THROW(Rotary(4, 3, 10000), ExecutionError); }

// Both arithmetics round the same products; only where they round differs. What a machine chooses is tested elsewhere.
TEST(Linear, BothArithmeticsAgreeInBf16) {
  const auto make = [](at::IntArrayRef sizes) { return at::randn(sizes, at::kFloat).to(at::kBFloat16); };
  const auto x = make({9, 20}), w = make({15, 20}), dy = make({9, 15}), residual = make({9, 15});
  const auto by = [&](Arithmetic arithmetic) {
    const Linear linear(arithmetic);
    const CallContext context;
    Tensors results = {make({9, 15}), make({9, 15}), make({9, 20}), at::zeros({9, 20}, at::kFloat),
                       at::zeros({15, 20}, at::kFloat)};
    run([&](Sequence& s) {
      linear.forward(s, x, w, results[0]);
      linear.forward_add(s, residual, x, w, Dropout({}, context), results[1]);
      linear.backward_input(s, dy, w, results[2]);
      linear.backward_input_sum(s, {{dy, w}, {dy, w}}, results[3]);
      linear.backward_weight(s, results[4], dy, x);
    });
    return results;
  };
  const auto direct = by(Arithmetic::Direct), wide = by(Arithmetic::ThroughFloat32);
  for (std::size_t i = 0; i < direct.size(); ++i)
    EXPECT_LE(relative_error(direct[i], wide[i]), 0x1p-7) << "product " << i;
}

// A window's views follow it; scratch of an ended frame is used again, and more than the limit is an error.
TEST(Sequence, LaysOutScratchInsideItsLimit) {
  const Window window(256);
  Sequence s(window, 256);
  at::Tensor first, second;
  {
    const auto frame = s.frame();
    first = s.scratch({3, 5}, at::kFloat);   // 60 bytes
    second = s.scratch({1}, at::kBFloat16);  // at 64
  }
  EXPECT_EQ(s.high_water(), 128);
  const auto third = s.scratch({64}, at::kFloat);
  EXPECT_EQ(s.high_water(), 256);
  EXPECT_THROW(s.scratch({1}, at::kFloat), ExecutionError);
  const Guarded a(256), b(256);
  for (const auto& memory : {a, b}) {
    window.place(memory.data());
    EXPECT_EQ(first.data_ptr(), memory.data());
    EXPECT_EQ(third.data_ptr(), memory.data());
    EXPECT_EQ(second.data_ptr(), static_cast<std::byte*>(memory.data()) + 64);
  }
}

at::Tensor initial(std::int64_t count, std::string_view name, std::uint64_t seed, double std = 0.02) {
  auto t = at::empty({count}, at::kFloat);
  init_parameter(t, name, seed, std, false);
  return t;
}

// A normal sample of n has mean 0 +- std/sqrt(n) and deviation std (1 +- 1/sqrt(2n)); five sigmas.
TEST(Init, MatricesAreNormal) {
  const std::int64_t n = 200'003;
  const auto t = initial(n, "model.embed_tokens.weight", 1).to(at::kDouble);
  EXPECT_NEAR(t.mean().item<double>(), 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(t.std().item<double>(), 0.02, 5 * 0.02 / std::sqrt(2.0 * n));
  const auto inside = t.abs().lt(0.02).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(inside, std::erf(1 / std::sqrt(2.0)), 5 * 0.5 / std::sqrt(n));
  EXPECT_GT(t.abs().max().item<double>(), 4 * 0.02);
}

TEST(Init, DependsOnSeedNameAndElementAlone) {
  const auto base = initial(1000, "model.layers.0.mlp.up_proj.weight", 1);
  EXPECT_TRUE(same_bits(base, initial(1000, "model.layers.0.mlp.up_proj.weight", 1)));
  EXPECT_TRUE(same_bits(base.narrow(0, 0, 601), initial(601, "model.layers.0.mlp.up_proj.weight", 1)));
  EXPECT_FALSE(same_bits(base, initial(1000, "model.layers.1.mlp.up_proj.weight", 1)));
  EXPECT_FALSE(same_bits(base, initial(1000, "model.layers.0.mlp.up_proj.weight", 2)));
}

// The first values as the definition gives them, computed apart from this code (Philox4x32-10 checked there against
// Random123's known answer 6627e8d5 e169c58d bc57ac4c 9b00dbd8 for key and counter 0).
TEST(Init, FollowsTheDocumentedGenerator) {
  const double want[] = {0.300866206, 0.334146255, -0.725175719, -1.249589924, -1.463464342, -0.149480467};
  const auto got = initial(6, "lm_head.weight", 42, 1.0);
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(got[i].item<double>(), want[i], 1e-6) << "element " << i;
}

TEST(Init, NormsAreOnes) {
  auto t = at::empty({33}, at::kFloat);
  init_parameter(t, "model.norm.weight", 7, 0.02, true);
  EXPECT_EQ(t.min().item<float>(), 1);
  EXPECT_EQ(t.max().item<float>(), 1);
}

}  // namespace
}  // namespace fem::exec::test
