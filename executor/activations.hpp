// The buffers that a program's forwards and backwards hand to each other on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "executor/units/unit.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// Activations, gradients, saved tensors and weight work by stage and microbatch. A buffer lives from the action that
// writes it to the action that kills it (ir/actions.def); both are counted, so that a program that leaks is found out.
//
// output(s,m) and grad_output(s,m) have one slot each; the input of stage s is the output of the stage before it,
// whether that was computed or received here, and likewise for gradients.
class Activations {
 public:
  // Slots for programs of up to `microbatches` microbatches, all empty.
  Activations(const ir::Plan& plan, int microbatches);

  // Flat index of (stage, microbatch); also the tag of its transfer.
  std::int64_t index(int stage, int microbatch) const { return std::int64_t{stage} * microbatches_ + microbatch; }
  std::int64_t slots() const { return static_cast<std::int64_t>(outputs_.size()); }

  void put_output(std::int64_t index, at::Tensor value) { put(outputs_, index, std::move(value)); }
  void put_gradient(std::int64_t index, at::Tensor value) { put(gradients_, index, std::move(value)); }
  const at::Tensor& output(std::int64_t index) const { return get(outputs_, index); }
  const at::Tensor& gradient(std::int64_t index) const { return get(gradients_, index); }
  at::Tensor take_output(std::int64_t index) { return take(outputs_, index); }
  at::Tensor take_gradient(std::int64_t index) { return take(gradients_, index); }

  // Per unit of the stage; the vectors keep their capacity.
  std::vector<Tensors>& saved(std::int64_t index) { return saved_[static_cast<std::size_t>(index)]; }
  std::vector<Tensors>& work(std::int64_t index) { return work_[static_cast<std::size_t>(index)]; }

  // A buffer [micro, seq_len, hidden] in the compute format to receive into: one that nothing refers to any more, or a
  // new one, so that memory stays at what the deepest point of the program needs.
  at::Tensor receive_buffer();

  // Releases everything, after an error or before another program.
  void clear();
  // Number of buffers that are alive: 0 between programs.
  std::int64_t alive() const;

 private:
  using Slots = std::vector<at::Tensor>;
  static void put(Slots& slots, std::int64_t index, at::Tensor value);
  static const at::Tensor& get(const Slots& slots, std::int64_t index);
  static at::Tensor take(Slots& slots, std::int64_t index);

  std::int64_t microbatches_;
  std::vector<std::int64_t> shape_;
  at::ScalarType format_;
  Slots outputs_, gradients_, received_;
  std::vector<std::vector<Tensors>> saved_, work_;
};

}  // namespace fem::exec
