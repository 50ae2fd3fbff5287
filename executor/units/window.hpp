// Memory given by address. Tensors made over a window follow it to another address, without an allocation.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace fem::exec {

// A copy refers to the same window. The memory belongs to someone else and must outlive its use.
class Window {
 public:
  explicit Window(std::int64_t bytes, c10::Device device = c10::kCPU);

  // Where the views lie from now on; nullptr while nothing uses them.
  void place(void* address) const;
  void* address() const { return storage_.mutable_data(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(storage_.nbytes()); }

  // A contiguous tensor that begins `offset` bytes behind the window's address.
  at::Tensor view(std::int64_t offset, at::IntArrayRef sizes, at::ScalarType type) const;

 private:
  c10::Storage storage_;
};

}  // namespace fem::exec
