// Memory for units in tests, and runs of a unit on it.
#include <cstring>

#include <gtest/gtest.h>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "functional.hpp"
#include "support.hpp"

namespace fem::exec::test {
namespace {

constexpr std::int64_t kGuard = 64;

std::int64_t block(const Blocks& b, ir::UnitBlock which) { return ir::block_bytes(b.kind, which, b.dims, b.formats); }
std::int64_t workspace(const Blocks& b, ir::Phase phase) {
  return ir::workspace_bytes(b.kind, phase, b.dims, b.formats);
}

}  // namespace

Guarded::Guarded(std::int64_t bytes, std::int64_t shift) : bytes_(bytes) {
  const auto all = static_cast<std::size_t>(bytes + shift + 3 * kGuard);
  memory_.reset(new std::byte[all]);
  std::memset(memory_.get(), 0xff, all);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
  data_ = memory_.get() + (kGuard - address % kGuard) + kGuard + shift;
}

at::Tensor Guarded::view(std::int64_t offset, at::IntArrayRef sizes, at::ScalarType type) const {
  return at::from_blob(data_ + offset, sizes, at::TensorOptions().dtype(type));
}

bool Guarded::untouched_around() const {
  const auto ones = [](const std::byte* from) {
    return std::all_of(from, from + kGuard, [](std::byte b) { return b == std::byte{0xff}; });
  };
  return ones(data_ - kGuard) && ones(data_ + bytes_);
}

Blocks::Blocks(const Shape& shape, std::int64_t unit, const Inputs& in, std::int64_t shift)
    : kind(ir::unit_kind(settings_of(shape), unit)),
      dims(ir::unit_dims(settings_of(shape))),
      formats(ir::unit_formats(settings_of(shape))),
      compute(compute_type(settings_of(shape))),
      micro(shape.micro),
      seq_len(shape.seq_len),
      x(formats.bytes(dims.tokens * dims.hidden), shift),
      y(block(*this, ir::UnitBlock::output), shift),
      saved_b(block(*this, ir::UnitBlock::saved_b), shift),
      saved_w(block(*this, ir::UnitBlock::saved_w), shift),
      work(block(*this, ir::UnitBlock::work), shift),
      dy(x.bytes(), shift),
      dx(block(*this, ir::UnitBlock::grad_input), shift),
      forward(workspace(*this, ir::Phase::forward), shift),
      discard(forward.bytes() + saved_b.bytes() + saved_w.bytes(), shift),
      backward_input(workspace(*this, ir::Phase::backward_input), shift),
      backward_weight(workspace(*this, ir::Phase::backward_weight), shift) {
  if (in.x.defined()) x.view(0, in.x.sizes(), compute).copy_(in.x);
  if (in.dy.defined()) dy.view(0, in.dy.sizes(), compute).copy_(in.dy);
}

UnitBuffers Blocks::at(ir::Phase phase) const {
  const auto& scratch = phase == ir::Phase::forward          ? forward
                        : phase == ir::Phase::backward_input ? backward_input
                                                             : backward_weight;
  return {.x = x.data(), .y = y.data(), .saved_b = saved_b.data(), .saved_w = saved_w.data(), .work = work.data(),
          .dy = dy.data(), .dx = dx.data(), .workspace = scratch.data()};
}

UnitBuffers Blocks::at_discarding(bool keep_saved_b) const {
  return {.x = x.data(), .y = y.data(), .saved_b = keep_saved_b ? saved_b.data() : nullptr,
          .workspace = discard.data()};
}

bool Blocks::guards_intact() const {
  const auto all = {&x, &y, &saved_b, &saved_w, &work, &dy, &dx, &forward, &discard, &backward_input, &backward_weight};
  return std::all_of(all.begin(), all.end(), [](const Guarded* g) { return g->untouched_around(); });
}

at::Tensor Blocks::copy(const ir::BufferInfo& row, ir::BufferPlace place) const {
  const Guarded& where = place.where == ir::BufferPlace::input         ? x
                         : place.where == ir::BufferPlace::grad_output ? dy
                         : place.where == ir::BufferPlace::saved_b     ? saved_b
                         : place.where == ir::BufferPlace::saved_w     ? saved_w
                                                                       : work;
  const auto type = row.format == ir::Format::Compute   ? compute
                    : row.format == ir::Format::Float32 ? at::kFloat
                                                        : at::kLong;
  return where.view(place.offset, {row.elements(dims)}, type).clone();
}

at::Tensor Blocks::output() const {
  return kind == ir::UnitKind::head ? at::Tensor() : y.view(0, {micro, seq_len, dims.hidden}, compute).clone();
}

at::Tensor Blocks::grad_input() const {
  return kind == ir::UnitKind::embedding ? at::Tensor() : dx.view(0, {micro, seq_len, dims.hidden}, compute).clone();
}

Tensors Blocks::saved_tensors() const {
  const auto rows = ir::info(kind).saved;
  Tensors all;
  for (std::size_t i = 0; i < rows.size(); ++i) all.push_back(copy(rows[i], ir::saved_place(kind, i, dims, formats)));
  return all;
}

Tensors Blocks::work_tensors() const {
  const auto rows = ir::info(kind).work;
  Tensors all;
  for (std::size_t i = 0; i < rows.size(); ++i) all.push_back(copy(rows[i], ir::work_place(kind, i, dims, formats)));
  return all;
}

Tensors zero_grads(const Inputs& in) {
  Tensors grads;
  for (const auto& p : in.params) grads.push_back(at::zeros(p.sizes(), at::kFloat));
  return grads;
}

namespace {

Results run_on(Unit& unit, const Blocks& blocks, const Inputs& in, Tensors grads, const CallContext& context = {}) {
  Results r;
  unit.forward(blocks.at(ir::Phase::forward), in.batch, &r.loss, context);
  r.y = blocks.output();
  r.saved = blocks.saved_tensors();
  unit.backward_input(blocks.at(ir::Phase::backward_input), context);
  r.dx = blocks.grad_input();
  r.work = blocks.work_tensors();
  unit.backward_weight(blocks.at(ir::Phase::backward_weight), context);
  r.grads = std::move(grads);
  EXPECT_TRUE(blocks.guards_intact()) << "memory beside a block was written";
  return r;
}

}  // namespace

Results run_unit(const Shape& shape, std::int64_t unit, const Inputs& in, std::int64_t shift) {
  const auto grads = zero_grads(in);
  const auto own = make_unit(settings_of(shape), unit, {}, in.params, grads);
  return run_on(*own, Blocks(shape, unit, in, shift), in, grads);
}

Results run_unit(const Shape& shape, std::int64_t unit, const Inputs& in, Arithmetic arithmetic,
                 const CallContext& context) {
  const auto grads = zero_grads(in);
  Unit own(settings_of(shape), unit, in.params, grads, arithmetic);
  return run_on(own, Blocks(shape, unit, in), in, grads, context);
}

Results run_functional(const Shape& shape, std::int64_t unit, const Inputs& in, Arithmetic arithmetic) {
  const auto trio = functional::make_unit(settings_of(shape), unit, arithmetic);
  const auto flat_copies = [](const Tensors& tensors) {
    Tensors copies;
    for (const auto& t : tensors) copies.push_back(t.clone().view(-1));
    return copies;
  };
  Results r;
  Tensors saved, work;
  r.y = trio->forward(in.params, in.x, in.batch, &saved, &r.loss);
  r.saved = flat_copies(saved);
  r.dx = trio->backward_input(in.params, in.dy, &saved, &work);
  r.work = flat_copies(work);
  r.grads = zero_grads(in);
  trio->backward_weight(&work, r.grads);
  return r;
}

}  // namespace fem::exec::test
