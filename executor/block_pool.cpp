#include "executor/block_pool.hpp"

#include <algorithm>

#include "executor/error.hpp"
#include "ir/units.hpp"

namespace fem::exec {

c10::DataPtr BlockPool::allocate(std::int64_t bytes) const {
  auto memory = c10::GetAllocator(device_.type())->allocate(static_cast<std::size_t>(bytes));
  FEM_CHECK(reinterpret_cast<std::uintptr_t>(memory.get()) % ir::kBufferAlignment == 0,
            "LibTorch's allocator gives memory that is not aligned to " + std::to_string(ir::kBufferAlignment) +
                " bytes");
  return memory;
}

void Block::reset() {
  address_ = nullptr;
  Slab* slab = std::exchange(slab_, nullptr);
  if (slab && --slab->shares == 0) slab->free->push_back(slab);
}

void BlockPool::use_arena(std::int64_t bytes) {
  FEM_CHECK(sizes_.empty() && arena_bytes_ == 0, "the arena comes before the first block");
  arena_ = allocate(bytes);
  arena_bytes_ = bytes;
  allocated_ += bytes;
}

Block BlockPool::take_from_arena(std::int64_t bytes, ir::Lane lane) {
  std::span<const ir::ArenaOffset>& next = next_[ir::lane_index(lane)];
  FEM_CHECK(!next.empty(), "the action takes a block for which the plan has no offset");
  const std::int64_t offset = next.front().offset;
  FEM_CHECK(offset >= 0 && offset + bytes <= arena_bytes_, "a block of " + std::to_string(bytes) + " bytes at " +
                                                               std::to_string(offset) + " ends outside the arena");
  next = next.subspan(1);
  return Block(static_cast<char*>(arena_.get()) + offset);
}

Block BlockPool::take(std::int64_t bytes, ir::Lane lane) {
  if (bytes == 0) return {};
  if (has_arena()) return take_from_arena(bytes, lane);
  auto size = std::find_if(sizes_.begin(), sizes_.end(), [&](const auto& s) { return s->bytes == bytes; });
  if (size == sizes_.end()) {
    sizes_.push_back(std::make_unique<Size>());
    size = std::prev(sizes_.end());
    (*size)->bytes = bytes;
  }
  auto& [unused, slabs, free] = **size;
  if (free.empty()) {
    auto slab = std::make_unique<Block::Slab>();
    slab->memory = allocate(bytes);
    slab->free = &free;
    slabs.push_back(std::move(slab));
    free.reserve(slabs.capacity());  // giving back never allocates
    allocated_ += bytes;
    return Block(slabs.back().get());
  }
  Block block(free.back());
  free.pop_back();
  return block;
}

void* BlockPool::workspace(std::int64_t bytes) {
  if (bytes > workspace_bytes_) {
    workspace_.clear();  // before the larger one: never both
    allocated_ += bytes - workspace_bytes_;
    workspace_ = allocate(bytes);
    workspace_bytes_ = bytes;
  }
  return workspace_.get();
}

}  // namespace fem::exec
