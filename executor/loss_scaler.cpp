#include "executor/loss_scaler.hpp"

#include <algorithm>
#include <bit>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

constexpr auto kMostScale = static_cast<std::int64_t>(ir::kMostScale);  // as a setting, too

bool power_of_two(std::int64_t n) { return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)); }

}  // namespace

LossScaler::LossScaler(const ir::Settings& settings)
    : on_(settings.precision.compute == "fp16"),
      interval_(settings.precision.loss_scale_interval),
      factor_(settings.precision.loss_scale_factor),
      state_{settings.precision.loss_scale, 0} {
  FEM_CHECK(power_of_two(state_.scale) && power_of_two(factor_), "a loss scale and its factor are powers of two");
  const auto sequences = static_cast<std::uint64_t>(settings.batch.global);
  const std::uint64_t tokens = sequences * static_cast<std::uint64_t>(settings.batch.seq_len);
  if (on_) step_tokens_ = static_cast<double>(std::bit_ceil(tokens));
}

void LossScaler::updated() {
  if (!on_ || ++state_.steady < interval_) return;
  state_ = {std::min(state_.scale * factor_, kMostScale), 0};
}

void LossScaler::overflowed() {
  if (on_) state_ = {std::max<std::int64_t>(state_.scale / factor_, 1), 0};
}

void LossScaler::restore(const LossScale& state) {
  if (!on_ || state.scale == 0) return;
  FEM_CHECK(power_of_two(state.scale), "the loss scale of the checkpoint, " + std::to_string(state.scale) +
                                           ", is not a power of two");
  state_ = state;
}

}  // namespace fem::exec
