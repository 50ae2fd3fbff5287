// Memory for blocks that are taken and given back all the time: a free list for each size.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>

namespace fem::exec {

class BlockPool;

// One owner's share of a block; the block is free when the last share goes. Not for two threads at once.
class Block {
 public:
  Block() = default;
  Block(const Block& other) : slab_(other.slab_) {
    if (slab_) ++slab_->shares;
  }
  Block(Block&& other) noexcept : slab_(std::exchange(other.slab_, nullptr)) {}
  Block& operator=(Block other) noexcept {
    std::swap(slab_, other.slab_);
    return *this;
  }
  ~Block() { reset(); }

  void reset();
  explicit operator bool() const { return slab_ != nullptr; }
  void* data() const { return slab_ ? slab_->memory.get() : nullptr; }

 private:
  friend class BlockPool;
  struct Slab {
    c10::DataPtr memory;
    std::int64_t shares = 0;
    std::vector<Slab*>* free = nullptr;
  };
  explicit Block(Slab* slab) : slab_(slab) { ++slab_->shares; }
  Slab* slab_ = nullptr;
};

// Grows to the most blocks of each size that are in use at once and allocates nothing after that.
class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block of at least `bytes`, at a multiple of ir::kBufferAlignment, with undefined contents. 0 bytes: no block.
  Block take(std::int64_t bytes);

  // Memory that outlives no call of a unit: one piece for all, as large as was ever asked for.
  void* workspace(std::int64_t bytes);

  std::int64_t allocated() const { return allocated_; }  // bytes of blocks and workspace
  std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  struct Size {
    std::int64_t bytes;
    std::vector<std::unique_ptr<Block::Slab>> slabs;
    std::vector<Block::Slab*> free;
  };
  std::vector<std::unique_ptr<Size>> sizes_;  // few: those of the blocks of each kind of unit
  c10::DataPtr workspace_;
  std::int64_t workspace_bytes_ = 0, allocated_ = 0;
};

}  // namespace fem::exec
