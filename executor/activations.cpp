#include "executor/activations.hpp"

#include <ATen/ops/empty.h>

#include "executor/error.hpp"
#include "ir/units.hpp"

namespace fem::exec {

Activations::Activations(const ir::Plan& plan, int microbatches)
    : microbatches_(microbatches),
      shape_{plan.settings.batch.micro, plan.settings.batch.seq_len, plan.settings.model.hidden},
      format_(plan.settings.precision.compute == "bf16" ? at::kBFloat16 : at::kFloat),
      outputs_(plan.stages.size() * static_cast<std::size_t>(microbatches)),
      gradients_(outputs_.size()),
      saved_(outputs_.size()),
      work_(outputs_.size()) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (int m = 0; m < microbatches; ++m) {
      const auto i = static_cast<std::size_t>(index(static_cast<int>(s), m));
      saved_[i].resize(static_cast<std::size_t>(plan.stages[s].units));
      work_[i].resize(saved_[i].size());
    }
}

void Activations::put(Slots& slots, std::int64_t index, at::Tensor value) {
  at::Tensor& slot = slots[static_cast<std::size_t>(index)];
  FEM_CHECK(!slot.defined(), "the buffer is written twice");
  FEM_CHECK(value.defined(), "the buffer would be written with nothing");
  slot = std::move(value);
}

const at::Tensor& Activations::get(const Slots& slots, std::int64_t index) {
  const at::Tensor& slot = slots[static_cast<std::size_t>(index)];
  FEM_CHECK(slot.defined(), "the buffer is read before it is written");
  return slot;
}

at::Tensor Activations::take(Slots& slots, std::int64_t index) {
  get(slots, index);
  return std::move(slots[static_cast<std::size_t>(index)]);
}

at::Tensor Activations::receive_buffer() {
  for (const at::Tensor& buffer : received_)
    // A saved tensor may be a view: it shares the storage, not the tensor.
    if (buffer.use_count() == 1 && buffer.storage().use_count() == 1) return buffer;
  return received_.emplace_back(at::empty(shape_, format_));
}

void Activations::clear() {
  for (Slots* slots : {&outputs_, &gradients_})
    for (at::Tensor& slot : *slots) slot.reset();
  for (auto* all : {&saved_, &work_})
    for (std::vector<Tensors>& units : *all)
      for (Tensors& tensors : units) tensors.clear();
}

std::int64_t Activations::alive() const {
  std::int64_t count = 0;
  for (const Slots* slots : {&outputs_, &gradients_})
    for (const at::Tensor& slot : *slots) count += slot.defined();
  for (const auto* all : {&saved_, &work_})
    for (const std::vector<Tensors>& units : *all)
      for (const Tensors& tensors : units)
        for (const at::Tensor& tensor : tensors) count += tensor.defined();
  return count;
}

}  // namespace fem::exec
