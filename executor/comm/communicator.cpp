// Sums over a group from moves alone: who sums which element is fixed by the layout, the order of the terms by the
// group, so the bits do not depend on the transport or on timing.
#include "executor/comm/communicator.hpp"

#include <algorithm>

#include "executor/comm/checks.hpp"

namespace fem::exec {
namespace {

// Elements that one member sums at a time: bounds the scratch at (members + 1) megabytes, and stays in the cache.
constexpr std::size_t kChunk = 256 * 1024;

// out[i] = blocks[0][i] + blocks[1][i] + ..., from the left. `out` may be outside `blocks` only.
void sum_blocks(const float* blocks, std::size_t members, std::size_t stride, std::size_t count, float* out) {
  std::copy_n(blocks, count, out);
  for (std::size_t j = 1; j < members; ++j) {
    const float* block = blocks + j * stride;
    for (std::size_t i = 0; i < count; ++i) out[i] += block[i];
  }
}

// Never more than was asked for: the old scratch goes first, and a fresh vector has no spare capacity.
float* grow(std::vector<float>& scratch, std::size_t count) {
  if (scratch.size() < count) {
    scratch = {};
    scratch.resize(count);
  }
  return scratch.data();
}

}  // namespace

std::size_t Communicator::scratch_bytes() const {
  std::size_t elements = 0;
  for (const std::vector<float>& scratch : scratch_) elements += scratch.size();
  return elements * sizeof(float);
}

std::size_t Communicator::all_reduce_scratch(std::size_t members, std::size_t elements) {
  return members == 1 ? 0 : members * std::max(std::min(kChunk, elements / members), elements % members);
}

std::size_t Communicator::reduce_scatter_scratch(std::size_t members, std::size_t elements) {
  return members == 1 ? 0 : 2 * members * std::min(kChunk, elements / members);
}

void Communicator::all_reduce_sum(ir::Group group, std::span<float> data, ir::Lane lane) {
  const auto members = static_cast<std::size_t>(group_size(group));
  const auto own = static_cast<std::size_t>(group_rank(group));
  if (members == 1) return;
  float* const received = grow(scratch_[static_cast<std::size_t>(lane)], all_reduce_scratch(members, data.size()));

  std::size_t begin = 0;
  while (data.size() - begin >= members) {
    const std::size_t block = std::min(kChunk, (data.size() - begin) / members);
    float* part = data.data() + begin;
    all_to_all(group, part, received, block * sizeof(float), lane);
    sum_blocks(received, members, block, block, part + own * block);
    all_gather(group, part + own * block, part, block * sizeof(float), lane);
    begin += members * block;
  }

  // Fewer elements than members are left: each member gets all of them from all, and sums them itself.
  const std::size_t left = data.size() - begin;
  if (left == 0) return;
  all_gather(group, data.data() + begin, received, left * sizeof(float), lane);
  sum_blocks(received, members, left, left, data.data() + begin);
}

void Communicator::reduce_scatter_sum(ir::Group group, std::span<float> data, ir::Lane lane) {
  const auto members = static_cast<std::size_t>(group_size(group));
  const auto own = static_cast<std::size_t>(group_rank(group));
  check_equal_blocks(*this, group, data.size());
  if (members == 1) return;
  float* const received = grow(scratch_[static_cast<std::size_t>(lane)], reduce_scatter_scratch(members, data.size()));

  const std::size_t block = data.size() / members;
  for (std::size_t begin = 0; begin < block; begin += kChunk) {
    const std::size_t count = std::min(kChunk, block - begin);
    const float* sent = data.data();
    if (count != block) {  // a column of the blocks: pack it
      float* packed = received + members * count;
      for (std::size_t j = 0; j < members; ++j)
        std::copy_n(data.data() + j * block + begin, count, packed + j * count);
      sent = packed;
    }
    all_to_all(group, sent, received, count * sizeof(float), lane);
    sum_blocks(received, members, count, count, data.data() + own * block + begin);
  }
}

}  // namespace fem::exec
