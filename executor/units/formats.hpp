// From tensors to their memory: the typed pointers of loops.hpp.
#pragma once

#include <ATen/core/Tensor.h>

namespace fem::exec {

// Calls visit with a null pointer of the format's element type: float, c10::BFloat16 or c10::Half.
template <class Visit>
void by_format(at::ScalarType format, Visit visit) {
  if (format == at::kFloat) {
    visit(static_cast<float*>(nullptr));
  } else if (format == at::kHalf) {
    visit(static_cast<c10::Half*>(nullptr));
  } else {
    visit(static_cast<c10::BFloat16*>(nullptr));
  }
}

// Runs own code over the memory of tensors. On the Meta device of a dry run, told by `t`, there is none and nothing is
// done; LibTorch's operators see to that by themselves. All own code that follows a tensor's address runs in here.
template <class Body>
void over_memory(const at::Tensor& t, Body body) {
  if (!t.is_meta()) body();
}

// Contiguous tensors only; the address is read at each call, since windows move.
template <class T>
const T* in(const at::Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}
template <class T>
T* out(const at::Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

}  // namespace fem::exec
