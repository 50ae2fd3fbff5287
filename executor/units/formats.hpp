// From tensors to the typed pointers of loops.hpp.
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
