#include "executor/units/cross_entropy.hpp"

#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sum.h>

#include "executor/error.hpp"
#include "executor/units/formats.hpp"
#include "executor/units/loops.hpp"

namespace fem::exec {
namespace {

void check_targets(const at::Tensor& targets, std::int64_t vocab) {
  const std::span ids(in<std::int64_t>(targets), static_cast<std::size_t>(targets.numel()));
  for (std::size_t t = 0; t < ids.size(); ++t)
    FEM_CHECK((ids[t] >= 0 && ids[t] < vocab) || ids[t] == kIgnoredTarget,
              "target " + std::to_string(ids[t]) + " at token " + std::to_string(t) +
                  " of the microbatch is neither below the vocabulary of " + std::to_string(vocab) + " nor " +
                  std::to_string(kIgnoredTarget));
}

// A few rows of a tensor at a time: views that move over it.
class MovingRows {
 public:
  MovingRows(const at::Tensor& whole, std::int64_t rows)
      : whole_(whole),
        row_bytes_(static_cast<std::int64_t>(whole.nbytes()) / whole.size(0)),
        window_(rows * row_bytes_, whole.device()) {}

  at::Tensor view(std::int64_t rows) const {
    auto sizes = whole_.sizes().vec();
    sizes[0] = rows;
    return window_.view(0, sizes, whole_.scalar_type());
  }
  void move_to(std::int64_t row) const {
    window_.place(out<std::byte>(whole_) + row * row_bytes_);
  }

 private:
  at::Tensor whole_;
  std::int64_t row_bytes_;
  Window window_;
};

// Calls record(begin, end, rows) for the blocks of equal size, and for the smaller one at the end.
template <class Record>
void for_each_size(const CrossEntropyTensors& t, Record record) {
  const auto tokens = t.logits.size(0), whole = tokens / t.rows * t.rows;
  if (whole > 0) record(0, whole, t.rows);
  if (whole < tokens) record(whole, tokens, tokens - whole);
}

// Fixed-order sum of the token losses lse - logit[target] over the valid tokens.
template <class T>
LossSum sum_losses(const CrossEntropyTensors& t) {
  const auto* logits = in<T>(t.logits);
  const auto* lse = in<float>(t.lse);
  const auto* id = in<std::int64_t>(t.targets);
  const auto vocab = t.logits.size(1);
  LossSum sum;
  for (std::int64_t token = 0; token < t.targets.numel(); ++token) {
    if (id[token] == kIgnoredTarget) continue;
    sum.loss += static_cast<double>(lse[token] - static_cast<float>(logits[token * vocab + id[token]]));
    ++sum.tokens;
  }
  return sum;
}

// Subtracts the one-hot of the targets from rows of probabilities; rows of ignored targets become 0.
void subtract_targets(float* rows, const std::int64_t* targets, std::int64_t count, std::int64_t vocab) {
  for (std::int64_t r = 0; r < count; ++r, rows += vocab) {
    if (targets[r] == kIgnoredTarget) {
      std::fill_n(rows, vocab, 0.0f);
    } else {
      rows[targets[r]] += -1.0f;
    }
  }
}

}  // namespace

void cross_entropy_forward(Sequence& s, const CrossEntropyTensors& t, LossSum* sum) {
  const auto vocab = t.logits.size(1);
  s.add([t, vocab] { over_memory(t.targets, [&] { check_targets(t.targets, vocab); }); });
  for_each_size(t, [&](std::int64_t begin, std::int64_t end, std::int64_t rows) {
    const auto frame = s.frame();
    const MovingRows logits(t.logits, rows), lse(t.lse, rows);
    const auto exponentials = s.scratch({rows, vocab}, at::kFloat);
    const auto largest = s.scratch({rows}, at::kFloat);
    const bool fp32 = t.logits.scalar_type() == at::kFloat;
    s.add([=, block = logits.view(rows), sums = lse.view(rows)]() mutable {
      for (std::int64_t first = begin; first < end; first += rows) {
        logits.move_to(first);
        lse.move_to(first);
        if (!fp32) exponentials.copy_(block);
        over_memory(exponentials, [&] {
          const auto* wide = in<float>(fp32 ? block : exponentials);
          loops::row_maxima(wide, out<float>(largest), rows, vocab);
          loops::subtract_rows(wide, in<float>(largest), out<float>(exponentials), rows, vocab);
        });
        exponentials.exp_();
        at::sum_out(sums, exponentials, at::IntArrayRef{-1});
        sums.log_();
        over_memory(sums, [&] { loops::add(out<float>(sums), in<float>(largest), rows); });
      }
    });
  });
  by_format(t.logits.scalar_type(), [&]<class T>(T*) {
    s.add([t, sum] { over_memory(t.logits, [&] { *sum = sum_losses<T>(t); }); });
  });
}

void cross_entropy_backward(Sequence& s, const CrossEntropyTensors& t, const CallContext& context) {
  const auto vocab = t.logits.size(1);
  for_each_size(t, [&](std::int64_t begin, std::int64_t end, std::int64_t rows) {
    const auto frame = s.frame();
    const MovingRows logits(t.logits, rows);
    const auto block = logits.view(rows);
    const bool fp32 = t.logits.scalar_type() == at::kFloat;
    const auto gradient = fp32 ? block : s.scratch({rows, vocab}, at::kFloat);
    const bool scaled = t.logits.scalar_type() == at::kHalf;
    s.add([=, context = &context]() mutable {
      for (std::int64_t first = begin; first < end; first += rows) {
        logits.move_to(first);
        if (!fp32) gradient.copy_(block);
        over_memory(gradient, [&] {
          auto* values = out<float>(gradient);
          loops::subtract_rows(values, in<float>(t.lse) + first, values, rows, vocab);
        });
        gradient.exp_();
        over_memory(gradient, [&] {
          auto* values = out<float>(gradient);
          subtract_targets(values, in<std::int64_t>(t.targets) + first, rows, vocab);
          if (scaled) loops::scale(values, context->loss_scale, rows * vocab);
        });
        if (!fp32) block.copy_(gradient);
      }
    });
  });
}

}  // namespace fem::exec
