// The dynamic loss scale of fp16 (Micikevicius et al., "Mixed precision training", 2018): gradients are computed of a
// multiple of the loss, so that small ones do not vanish in a format whose least positive number is 6e-8.
#pragma once

#include <cstdint>

#include "ir/settings.hpp"

namespace fem::exec {

// What a checkpoint keeps of it.
struct LossScale {
  std::int64_t scale = 0;   // 0: none was kept
  std::int64_t steady = 0;  // updates since it changed
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// Every rank has one; they stay equal, for they are told of the same steps.
class LossScaler {
 public:
  // With precision.compute other than fp16 the factor is 1 for good.
  explicit LossScaler(const ir::Settings& settings);

  bool on() const { return on_; }

  // On the mean loss of a step over its tokens, as other systems count it. Always a power of two.
  std::int64_t scale() const { return state_.scale; }

  // On the plain sum of token losses, whose gradient the units compute: the scale over the least power of two that is
  // at least the number of tokens of a step. A power of two: multiplying by it and dividing again change no bit.
  double factor() const { return on_ ? static_cast<double>(state_.scale) / step_tokens_ : 1; }

  // After a step whose update was made: grows the scale after precision.loss_scale_interval of them in a row.
  void updated();
  // After a step whose loss or gradient was not finite: shrinks the scale, not below 1.
  void overflowed();

  LossScale state() const { return on_ ? state_ : LossScale{}; }
  // Goes on where a checkpoint stopped; one that kept no scale changes nothing.
  void restore(const LossScale& state);

 private:
  bool on_;
  double step_tokens_ = 1;
  std::int64_t interval_, factor_;
  LossScale state_;
};

}  // namespace fem::exec
