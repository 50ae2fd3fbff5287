// Memory for blocks that are taken and given back all the time: a free list for each size, or an arena with the plan's
// offsets.
#pragma once

#include <cstdint>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>

#include "ir/plan.hpp"

namespace fem::exec {

class BlockPool;

// One owner's share of a block; where the pool has free lists, the block is free when the last share goes. Not for two
// threads at once, but in an arena.
class Block {
 public:
  Block() = default;
  Block(const Block& other) : address_(other.address_), slab_(other.slab_) {
    if (slab_) ++slab_->shares;
  }
  Block(Block&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), slab_(std::exchange(other.slab_, nullptr)) {}
  Block& operator=(Block other) noexcept {
    std::swap(address_, other.address_);
    std::swap(slab_, other.slab_);
    return *this;
  }
  ~Block() { reset(); }

  void reset();
  explicit operator bool() const { return address_ != nullptr; }
  void* data() const { return address_; }

 private:
  friend class BlockPool;
  struct Slab {
    c10::DataPtr memory;
    std::int64_t shares = 0;
    std::vector<Slab*>* free = nullptr;
  };
  explicit Block(Slab* slab) : address_(slab->memory.get()), slab_(slab) { ++slab_->shares; }
  explicit Block(void* address) : address_(address) {}
  void* address_ = nullptr;
  Slab* slab_ = nullptr;
};

// Free lists grow to the most blocks of each size that are in use at once and allocate nothing after that. An arena is
// allocated once; where its blocks lie and when bytes are free, the plan says, so lanes may take at the same time.
class BlockPool {
 public:
  explicit BlockPool(c10::Device device = c10::kCPU) : device_(device) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // From now on blocks come from an arena of so many bytes. Before the first block.
  void use_arena(std::int64_t bytes);
  bool has_arena() const { return arena_bytes_ > 0; }
  // The blocks that the lane takes next, in order; take() without one left is an error.
  void expect(ir::Lane lane, std::span<const ir::ArenaOffset> offsets) { next_[ir::lane_index(lane)] = offsets; }
  // Whether the lane took all that expect() announced.
  bool complete(ir::Lane lane) const { return next_[ir::lane_index(lane)].empty(); }

  // A block of at least `bytes`, at a multiple of ir::kBufferAlignment, with undefined contents. 0 bytes: no block.
  Block take(std::int64_t bytes, ir::Lane lane = ir::Lane::Compute);

  // Memory that outlives no call of a unit: one piece for all, as large as was ever asked for.
  void* workspace(std::int64_t bytes);

  bool holds_data() const { return !device_.is_meta(); }  // false in a dry run
  std::int64_t allocated() const { return allocated_; }  // bytes of blocks and workspace
  std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  c10::DataPtr allocate(std::int64_t bytes) const;

  struct Size {
    std::int64_t bytes;
    std::vector<std::unique_ptr<Block::Slab>> slabs;
    std::vector<Block::Slab*> free;
  };
  Block take_from_arena(std::int64_t bytes, ir::Lane lane);

  c10::Device device_;
  std::vector<std::unique_ptr<Size>> sizes_;  // few: those of the blocks of each kind of unit
  c10::DataPtr workspace_, arena_;
  std::int64_t workspace_bytes_ = 0, arena_bytes_ = 0, allocated_ = 0;
  std::array<std::span<const ir::ArenaOffset>, ir::kLanes> next_;
};

}  // namespace fem::exec
