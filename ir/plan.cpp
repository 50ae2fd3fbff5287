#include "ir/plan.hpp"

namespace fem::ir {

std::size_t batch_size(std::span<const Action> actions, std::size_t i) {
  std::size_t end = i;
  while (end < actions.size() && actions[end].joined()) ++end;
  return end < actions.size() ? end - i + 1 : actions.size() - i;
}

const Program* Plan::find(std::string_view program) const {
  for (const Program& p : programs) {
    if (p.name == program) return &p;
  }
  return nullptr;
}

std::int64_t microbatches(const Settings& settings) {
  const std::int64_t dp = settings.parallel.dp, micro = settings.batch.micro;
  if (dp <= 0 || micro <= 0) return 0;
  return settings.batch.global / dp / micro;  // the same as dividing by the product, which may not fit
}

int sending_stage(std::span<const Stage> stages, const Action& half) {
  const Stage& stage = stages[static_cast<std::size_t>(half.stage)];
  if (is_send(half.kind)) return half.stage;
  return goes_backward(half.kind) ? stage.next : stage.prev;
}

std::size_t message_index(std::span<const Stage> stages, std::int64_t microbatches, const Action& half) {
  const std::size_t direction = goes_backward(half.kind) ? stages.size() : 0;
  return (direction + static_cast<std::size_t>(sending_stage(stages, half))) * static_cast<std::size_t>(microbatches) +
         static_cast<std::size_t>(half.microbatch);
}

}  // namespace fem::ir
