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

std::int64_t Progress::index(ir::Lane lane) const noexcept {
  const std::int64_t at = position(lane);
  return at == 0 ? -1 : at & ((1 << kActionBits) - 1);
}

std::string Progress::describe(std::int64_t step, std::int64_t index) const {
  if (index < 0) return {};
  std::lock_guard lock(mutex_);
  return describe_ ? describe_(step, static_cast<std::uint32_t>(index)) : "action " + std::to_string(index);
}

std::string Progress::action(ir::Lane lane) const { return describe(step(lane), index(lane)); }

std::string Progress::text(ir::Lane lane) const {
  const std::int64_t at = step(lane);
  if (at < 0) return "not inside a step";
  return "at step " + std::to_string(at) + ", " + action(lane);
}

}  // namespace fem::exec
