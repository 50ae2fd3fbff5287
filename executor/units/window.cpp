#include "executor/units/window.hpp"

#include "executor/error.hpp"

namespace fem::exec {

Window::Window(std::int64_t bytes, c10::Device device)
    : storage_(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes),
               at::DataPtr(nullptr, device), /*allocator=*/nullptr, /*resizable=*/false) {}

void Window::place(void* address) const {
  storage_.set_data_ptr_noswap(at::DataPtr(address, storage_.device()));
}

at::Tensor Window::view(std::int64_t offset, at::IntArrayRef sizes, at::ScalarType type) const {
  const auto key = storage_.device().is_meta() ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage_), c10::DispatchKeySet(key),
                                                         c10::scalarTypeToTypeMeta(type));
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  FEM_CHECK(offset % item == 0, "a tensor begins inside an element");
  impl->set_storage_offset(offset / item);
  impl->set_sizes_contiguous(sizes);
  FEM_CHECK(offset + static_cast<std::int64_t>(tensor.nbytes()) <= static_cast<std::int64_t>(storage_.nbytes()),
            "a tensor ends behind its window");
  return tensor;
}

}  // namespace fem::exec
