#include "executor/activations.hpp"

#include "executor/error.hpp"
#include "ir/units.hpp"

namespace fem::exec {

Activations::Activations(const ir::Plan& plan, int microbatches, c10::Device device)
    : microbatches_(microbatches),
      pool_(device),
      host_pool_(device),
      outputs_(plan.stages.size() * static_cast<std::size_t>(microbatches)),
      gradients_(outputs_.size()),
      units_(outputs_.size()) {
  const auto dims = ir::unit_dims(plan.settings);
  const auto formats = ir::unit_formats(plan.settings);
  activation_bytes_ = static_cast<std::size_t>(dims.tokens * dims.hidden * formats.compute);
  activation_block_ = ir::block_bytes(ir::UnitKind::block, ir::UnitBlock::output, dims, formats);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (int m = 0; m < microbatches; ++m)
      units_[static_cast<std::size_t>(index(static_cast<int>(s), m))].resize(
          static_cast<std::size_t>(plan.stages[s].units));
}

void Activations::put(Slots& slots, std::int64_t index, Block value) {
  Block& slot = slots[static_cast<std::size_t>(index)];
  FEM_CHECK(!slot, "the buffer is written twice");
  FEM_CHECK(value, "the buffer would be written with nothing");
  slot = std::move(value);
}

Block Activations::take(Slots& slots, std::int64_t index) {
  Block& slot = slots[static_cast<std::size_t>(index)];
  FEM_CHECK(slot, "the buffer is read before it is written");
  return std::move(slot);
}

void Activations::clear() {
  for (Slots* slots : {&outputs_, &gradients_})
    for (Block& slot : *slots) slot.reset();
  for (std::vector<UnitBlocks>& units : units_)
    for (UnitBlocks& blocks : units) blocks = {};
}

std::int64_t Activations::alive() const {
  std::int64_t count = 0;
  for (const Slots* slots : {&outputs_, &gradients_})
    for (const Block& slot : *slots) count += slot ? 1 : 0;
  for (const std::vector<UnitBlocks>& units : units_)
    for (const UnitBlocks& u : units)
      for (const Block* block :
           {&u.input, &u.output, &u.saved_b, &u.saved_w, &u.grad_output, &u.work, &u.host_b, &u.host_w})
        count += *block ? 1 : 0;
  return count;
}

}  // namespace fem::exec
