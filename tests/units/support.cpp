#include "support.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/triu.h>

#include "executor/units/philox.hpp"

namespace fem::exec::test {
namespace {

// Results are promised for one intra-op thread per rank.
class OneThread : public ::testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

at::ScalarType compute_of(const Shape& s) { return compute_type(settings_of(s)); }

at::Tensor norm(const at::Tensor& x, const at::Tensor& w, double eps) {
  return x * at::rsqrt((x * x).mean(-1, true) + eps) * w;
}

// Rotate-half, as in Hugging Face's modeling_llama.py: x cos + rotate_half(x) sin. x [micro, heads, seq, head_dim].
at::Tensor rotate(const at::Tensor& x, double theta) {
  const auto half = x.size(-1) / 2;
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const auto frequency = at::pow(theta, at::arange(half, wide) * (-1.0 / static_cast<double>(half)));
  const auto angle = at::outer(at::arange(x.size(-2), wide), frequency);
  const auto both = at::cat(Tensors{angle, angle}, -1);
  const auto turned = at::cat(Tensors{-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return x * both.cos() + turned * both.sin();
}

at::Tensor block(const Shape& s, const ir::Settings& settings, const Tensors& p, const at::Tensor& x,
                 const CallContext& context) {
  const auto eps = settings.model.norm_eps, theta = settings.model.rope_theta;
  const auto heads = [&](const at::Tensor& t, std::int64_t n) {
    return t.view({s.micro, s.seq_len, n, s.head_dim}).transpose(1, 2);
  };
  const auto group = s.heads / s.kv_heads;
  const auto n1 = norm(x, p[0], eps);
  const auto q = rotate(heads(at::linear(n1, p[1]), s.heads), theta);
  const auto k = rotate(heads(at::linear(n1, p[2]), s.kv_heads), theta).repeat_interleave(group, 1);
  const auto v = heads(at::linear(n1, p[3]), s.kv_heads).repeat_interleave(group, 1);
  const auto future = at::triu(at::ones({s.seq_len, s.seq_len}, at::kBool), 1);
  const auto scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(s.head_dim));
  const auto weights = at::softmax(scores.masked_fill(future, -INFINITY), -1);
  const auto drop = [&](const at::Tensor& t, std::uint32_t place) {
    return context.train ? t * dropout_factors(s, kBlock, place, context) : t;
  };
  const auto attention = at::matmul(weights, v).transpose(1, 2).reshape({s.micro, s.seq_len, s.heads * s.head_dim});
  const auto mid = x + drop(at::linear(attention, p[4]), 1);
  const auto n2 = norm(mid, p[5], eps);
  return mid + drop(at::linear(at::silu(at::linear(n2, p[6])) * at::linear(n2, p[7]), p[8]), 2);
}

}  // namespace

std::string describe(const Shape& s) {
  return std::string(s.compute) + "_seq" + std::to_string(s.seq_len) + "_hidden" + std::to_string(s.hidden) + "_heads" +
         std::to_string(s.heads) + "_kv" + std::to_string(s.kv_heads) + "_dim" + std::to_string(s.head_dim) +
         (s.dropout > 0 ? "_drop" : "");
}

void PrintTo(const Shape& shape, std::ostream* out) { *out << describe(shape); }

ir::Settings settings_of(const Shape& shape) {
  ir::Settings settings;
  settings.model.layers = 1;
  settings.model.hidden = shape.hidden;
  settings.model.intermediate = shape.intermediate;
  settings.model.heads = shape.heads;
  settings.model.kv_heads = shape.kv_heads;
  settings.model.head_dim = shape.head_dim;
  settings.model.vocab = shape.vocab;
  settings.batch.global = settings.batch.micro = shape.micro;
  settings.batch.seq_len = shape.seq_len;
  settings.precision.compute = shape.compute;
  settings.model.dropout = shape.dropout;
  settings.run.seed = 0x1234567890;  // both halves of the key
  return settings;
}

at::Tensor dropout_factors(const Shape& shape, std::int64_t unit, std::uint32_t place, const CallContext& context) {
  const auto seed = static_cast<std::uint64_t>(settings_of(shape).run.seed);
  const auto whole = static_cast<std::uint32_t>(std::round(shape.dropout * 0x1p32));
  auto factors = at::ones({shape.micro, shape.seq_len, shape.hidden}, at::kDouble);
  for (std::int64_t i = 0; i < factors.numel(); ++i) {
    const auto element = static_cast<std::uint64_t>(context.sample * shape.seq_len * shape.hidden + i);
    const auto words = philox({static_cast<std::uint32_t>(element / 4), static_cast<std::uint32_t>(element / 4 >> 32),
                               static_cast<std::uint32_t>(context.step), static_cast<std::uint32_t>(unit * 4) + place},
                              {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32) ^ 0x64726f70});
    factors.mutable_data_ptr<double>()[i] = words[element % 4] < whole ? 0.0 : 1 / (1 - shape.dropout);
  }
  return factors;
}

Inputs inputs_of(const Shape& shape, std::int64_t unit, std::uint64_t seed) {
  const auto settings = settings_of(shape);
  const auto dims = ir::unit_dims(settings);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto type = compute_of(shape);
  const auto normal = [&](at::IntArrayRef sizes, double mean, double std) {
    return at::randn(sizes, generator, at::TensorOptions().dtype(at::kFloat)).mul_(std).add_(mean).to(type);
  };
  Inputs in;
  for (const auto& row : ir::info(ir::unit_kind(settings, unit)).params) {
    const auto rows = row.rows(dims), cols = row.cols(dims);
    in.params.push_back(cols ? normal({rows, cols}, 0, 0.2) : normal({rows}, 1, 0.2));
  }
  const std::int64_t activation[] = {shape.micro, shape.seq_len, shape.hidden};
  if (unit != kEmbedding) in.x = normal(activation, 0, 1);
  if (unit != kHead) in.dy = normal(activation, 0, 1);
  const std::int64_t batch[] = {shape.micro, shape.seq_len};
  in.batch.tokens = at::randint(0, shape.vocab, batch, generator, at::TensorOptions().dtype(at::kLong));
  in.batch.targets = at::randint(0, shape.vocab, batch, generator, at::TensorOptions().dtype(at::kLong));
  return in;
}

Results reference(const Shape& shape, std::int64_t unit, const Inputs& in, const CallContext& context) {
  const auto settings = settings_of(shape);
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).detach().clone().requires_grad_(true); };
  Tensors params;
  for (const auto& p : in.params) params.push_back(leaf(p));
  const auto x = in.x.defined() ? leaf(in.x) : at::Tensor();
  Results r;
  if (unit == kHead) {
    const auto logits = at::linear(norm(x, params[0], settings.model.norm_eps), params[1]).view({-1, shape.vocab});
    const auto loss = at::cross_entropy_loss(logits, in.batch.targets.view(-1), {}, at::Reduction::Sum, kIgnoredTarget);
    loss.backward();
    r.loss.loss = loss.item<double>();
    r.loss.tokens = in.batch.targets.ne(kIgnoredTarget).sum().item<std::int64_t>();
  } else {
    r.y = unit == kEmbedding ? at::embedding(params[0], in.batch.tokens) : block(shape, settings, params, x, context);
    if (unit == kEmbedding && context.train) r.y = r.y * dropout_factors(shape, unit, 0, context);
    r.y.backward(in.dy.to(at::kDouble));
  }
  if (x.defined()) r.dx = x.grad();
  for (const auto& p : params) r.grads.push_back(p.grad());
  return r;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  const auto wide = b.detach().to(at::kDouble);
  const auto largest = wide.abs().max().item<double>();
  const auto difference = (a.detach().to(at::kDouble) - wide).abs().max().item<double>();
  return largest > 0 ? difference / largest : difference;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || at::equal(a, b);
}

}  // namespace fem::exec::test
