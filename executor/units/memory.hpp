// The memory that one unit's calls touch: its blocks and workspace by address, the unit table's rows as views.
#pragma once

#include "executor/units/sequence.hpp"
#include "ir/units.hpp"

namespace fem::exec {

// Format of parameters and activations: precision.compute.
at::ScalarType compute_type(const ir::Settings& settings);

// Addresses of one call, multiples of ir::kBufferAlignment, of the sizes that ir/units.hpp declares: block_bytes and
// workspace_bytes. What a phase does not touch may be nullptr. A forward without saved blocks keeps nothing: they then
// lie behind its workspace, which must be larger by as much.
struct UnitBuffers {
  void *x = nullptr, *y = nullptr;                    // input and output activation
  void *saved_b = nullptr, *saved_w = nullptr, *work = nullptr;
  void *dy = nullptr, *dx = nullptr;                  // gradients of output and input
  void *workspace = nullptr;
};

class UnitMemory {
 public:
  UnitMemory(ir::UnitKind kind, const ir::Settings& settings, c10::Device device);

  // The addresses of all views from now on.
  void place(const UnitBuffers& at) const;

  // Activations and their gradients as [tokens, hidden].
  at::Tensor x() const { return activation(x_); }
  at::Tensor y() const { return activation(y_); }
  at::Tensor dy() const { return activation(dy_); }
  at::Tensor dx() const { return activation(dx_); }

  // Row `index` of the table's SAVED and WORK lists, with sizes that multiply to its elements.
  at::Tensor saved(std::size_t index, at::IntArrayRef sizes) const;
  at::Tensor work(std::size_t index, at::IntArrayRef sizes) const;

  // An empty sequence with the phase's workspace.
  Sequence sequence(ir::Phase phase) const;

  const ir::UnitDims& dims() const { return dims_; }
  at::ScalarType compute() const { return compute_; }
  std::int64_t workspace_bytes(ir::Phase phase) const;

 private:
  at::Tensor activation(const Window& window) const;
  at::Tensor view(const ir::BufferInfo& row, ir::BufferPlace place, at::IntArrayRef sizes) const;

  ir::UnitKind kind_;
  ir::UnitDims dims_;
  ir::UnitFormats formats_;
  at::ScalarType compute_;
  Window x_, y_, saved_b_, saved_w_, work_, dy_, dx_, workspace_;
};

}  // namespace fem::exec
