#include "executor/comm/progress.hpp"

#include <utility>

namespace fem::exec {

void Progress::describe_with(Describe describe) {
  std::lock_guard lock(mutex_);
  describe_ = std::move(describe);
}

std::int64_t Progress::position(ir::Lane lane) const noexcept {
  const std::int64_t own = at_[static_cast<std::size_t>(lane)].load(std::memory_order_relaxed);
  return own != 0 ? own : at_[static_cast<std::size_t>(ir::Lane::Compute)].load(std::memory_order_relaxed);
}

std::int64_t Progress::step(ir::Lane lane) const noexcept {
  const std::int64_t at = position(lane);
  return at == 0 ? -1 : (at >> kActionBits) - 1;
}

std::string Progress::action(ir::Lane lane) const {
  const std::int64_t at = position(lane);
  if (at == 0) return {};
  const auto index = static_cast<std::uint32_t>(at & ((1 << kActionBits) - 1));
  std::lock_guard lock(mutex_);
  return describe_ ? describe_((at >> kActionBits) - 1, index) : "action " + std::to_string(index);
}

std::string Progress::text(ir::Lane lane) const {
  const std::int64_t at = step(lane);
  if (at < 0) return "not inside a step";
  return "at step " + std::to_string(at) + ", " + action(lane);
}

}  // namespace fem::exec
