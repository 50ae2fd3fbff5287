#include "executor/units/cross_entropy.hpp"

#include <algorithm>

#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

// Rows are handled in blocks of about this many elements: the fp32 temporaries stay this small, and in the cache.
constexpr std::int64_t kBlockElements = 1 << 17;

// Calls visit(first row, rows) for each block; the division depends on the vocabulary alone.
template <class Visit>
void for_each_block(const at::Tensor& logits, Visit visit) {
  const auto tokens = logits.size(0);
  const auto rows = std::max<std::int64_t>(1, kBlockElements / logits.size(1));
  for (std::int64_t begin = 0; begin < tokens; begin += rows) visit(begin, std::min(rows, tokens - begin));
}

void check_targets(const at::Tensor& targets, std::int64_t vocab) {
  const std::span ids(targets.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(targets.numel()));
  for (std::size_t t = 0; t < ids.size(); ++t)
    FEM_CHECK((ids[t] >= 0 && ids[t] < vocab) || ids[t] == kIgnoredTarget,
              "target " + std::to_string(ids[t]) + " at token " + std::to_string(t) +
                  " of the microbatch is neither below the vocabulary of " + std::to_string(vocab) + " nor " +
                  std::to_string(kIgnoredTarget));
}

// Fixed-order sum of the token losses lse - logit[target] over the valid tokens.
LossSum sum_losses(const at::Tensor& lse, const at::Tensor& picked, const at::Tensor& targets) {
  const auto* l = lse.const_data_ptr<float>();
  const auto* x = picked.const_data_ptr<float>();
  const auto* id = targets.const_data_ptr<std::int64_t>();
  LossSum sum;
  for (std::int64_t t = 0; t < targets.numel(); ++t) {
    if (id[t] == kIgnoredTarget) continue;
    sum.loss += static_cast<double>(l[t] - x[t]);
    ++sum.tokens;
  }
  return sum;
}

}  // namespace

CrossEntropyOutput cross_entropy_forward(const at::Tensor& logits, const at::Tensor& targets) {
  check_targets(targets, logits.size(1));
  auto lse = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  for_each_block(logits, [&](std::int64_t begin, std::int64_t rows) {
    const auto block = logits.narrow(0, begin, rows).to(at::kFloat);
    const auto largest = at::amax(block, -1, /*keepdim=*/true);
    auto out = lse.narrow(0, begin, rows);
    at::sum_out(out, at::sub(block, largest).exp_(), -1);
    out.log_().add_(largest.squeeze(-1));
  });
  const auto picked = logits.gather(1, targets.clamp_min(0).unsqueeze(1)).to(at::kFloat);
  return {sum_losses(lse, picked, targets), std::move(lse)};
}

void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& lse, const at::Tensor& targets) {
  const auto ignored = targets.eq(kIgnoredTarget).unsqueeze(1);
  const auto index = targets.clamp_min(0).unsqueeze(1);
  for_each_block(logits, [&](std::int64_t begin, std::int64_t rows) {
    const auto block = logits.narrow(0, begin, rows);
    auto gradient = block.to(at::kFloat);  // block itself in fp32
    gradient.sub_(lse.narrow(0, begin, rows).unsqueeze(1)).exp_();
    gradient.scatter_(1, index.narrow(0, begin, rows), -1.0, "add");
    gradient.masked_fill_(ignored.narrow(0, begin, rows), 0.0);
    if (block.scalar_type() != at::kFloat) block.copy_(gradient);
  });
}

}  // namespace fem::exec
