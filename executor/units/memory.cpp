#include "executor/units/memory.hpp"

#include "executor/error.hpp"

namespace fem::exec {
namespace {

at::ScalarType type_of(ir::Format format, at::ScalarType compute) {
  switch (format) {
    case ir::Format::Compute: return compute;
    case ir::Format::Float32: return at::kFloat;
    case ir::Format::Int64: return at::kLong;
  }
  return compute;
}

}  // namespace

at::ScalarType compute_type(const ir::Settings& settings) {
  const auto& word = settings.precision.compute;
  FEM_CHECK(word == "fp32" || word == "bf16" || word == "fp16",
            "precision.compute is '" + word + "', not fp32, bf16 or fp16");
  return word == "fp32" ? at::kFloat : word == "bf16" ? at::kBFloat16 : at::kHalf;
}

UnitMemory::UnitMemory(ir::UnitKind kind, const ir::Settings& settings, c10::Device device)
    : kind_(kind),
      dims_(ir::unit_dims(settings)),
      formats_(ir::unit_formats(settings)),
      compute_(compute_type(settings)),
      x_(formats_.bytes(dims_.tokens * dims_.hidden), device),
      y_(x_.bytes(), device),
      saved_b_(ir::block_bytes(kind, ir::UnitBlock::saved_b, dims_, formats_), device),
      saved_w_(ir::block_bytes(kind, ir::UnitBlock::saved_w, dims_, formats_), device),
      work_(ir::block_bytes(kind, ir::UnitBlock::work, dims_, formats_), device),
      dy_(x_.bytes(), device),
      dx_(x_.bytes(), device),
      workspace_(std::max({workspace_bytes(ir::Phase::forward), workspace_bytes(ir::Phase::backward_input),
                           workspace_bytes(ir::Phase::backward_weight)}),
                 device) {}

std::int64_t UnitMemory::workspace_bytes(ir::Phase phase) const {
  return ir::workspace_bytes(kind_, phase, dims_, formats_);
}

void UnitMemory::place(const UnitBuffers& at) const {
  for ([[maybe_unused]] const void* address : {at.x, at.y, at.saved_b, at.saved_w, at.work, at.dy, at.dx, at.workspace})
    FEM_DCHECK(reinterpret_cast<std::uintptr_t>(address) % ir::kBufferAlignment == 0, "a block is not aligned");
  auto* behind = static_cast<std::byte*>(at.workspace);
  if (behind) behind += workspace_bytes(ir::Phase::forward);
  void* saved_b = at.saved_b ? at.saved_b : behind;
  if (behind && !at.saved_b) behind += saved_b_.bytes();
  x_.place(at.x);
  y_.place(at.y);
  saved_b_.place(saved_b);
  saved_w_.place(at.saved_w ? at.saved_w : behind);
  work_.place(at.work);
  dy_.place(at.dy);
  dx_.place(at.dx);
  workspace_.place(at.workspace);
}

at::Tensor UnitMemory::activation(const Window& window) const {
  return window.view(0, {dims_.tokens, dims_.hidden}, compute_);
}

at::Tensor UnitMemory::view(const ir::BufferInfo& row, ir::BufferPlace place, at::IntArrayRef sizes) const {
  FEM_CHECK(c10::multiply_integers(sizes) == row.elements(dims_),
            "tensor '" + std::string(row.name) + "' has other elements than the unit table says");
  const auto window = [&]() -> const Window& {
    switch (place.where) {
      case ir::BufferPlace::input: return x_;
      case ir::BufferPlace::grad_output: return dy_;
      case ir::BufferPlace::saved_b: return saved_b_;
      case ir::BufferPlace::saved_w: return saved_w_;
      case ir::BufferPlace::work: return work_;
    }
    return x_;
  };
  return window().view(place.offset, sizes, type_of(row.format, compute_));
}

at::Tensor UnitMemory::saved(std::size_t index, at::IntArrayRef sizes) const {
  return view(ir::info(kind_).saved[index], ir::saved_place(kind_, index, dims_, formats_), sizes);
}

at::Tensor UnitMemory::work(std::size_t index, at::IntArrayRef sizes) const {
  return view(ir::info(kind_).work[index], ir::work_place(kind_, index, dims_, formats_), sizes);
}

Sequence UnitMemory::sequence(ir::Phase phase) const { return {workspace_, workspace_bytes(phase)}; }

}  // namespace fem::exec
