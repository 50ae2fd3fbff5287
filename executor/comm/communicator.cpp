// Sums over a group from moves alone: who sums which element is fixed by the layout, the order of the terms by the
// group, so the bits do not depend on the transport or on timing.
#include "executor/comm/communicator.hpp"

#include <algorithm>
#include <type_traits>

#include "executor/comm/bf16.hpp"
#include "executor/comm/checks.hpp"
#include "ir/reduction_scratch.hpp"

namespace fem::exec {
namespace {

constexpr auto kChunk = static_cast<std::size_t>(ir::kReductionChunk);

std::int64_t elements(std::span<const float> data) { return static_cast<std::int64_t>(data.size()); }

template <class From, class To>
void copy(const From* from, std::size_t count, To* to) {
  if constexpr (std::is_same_v<From, To>) {
    std::copy_n(from, count, to);
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
  }
}

// out[i] = blocks[0][i] + blocks[1][i] + ..., from the left, in fp32. `out` may be outside `blocks` only. T: what the
// members send.
template <class T>
void sum_blocks(const T* blocks, std::size_t members, std::size_t count, float* out) {
  copy(blocks, count, out);
  for (std::size_t j = 1; j < members; ++j) {
    const T* block = blocks + j * count;
    for (std::size_t i = 0; i < count; ++i) out[i] += static_cast<float>(block[i]);
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

// `count` values of each of `blocks` blocks that lie `stride` apart, one block behind the other as T: where they lie if
// that is so already, else packed into `to`.
template <class T>
const T* pack(const float* from, std::size_t blocks, std::size_t stride, std::size_t count, T* to) {
  if constexpr (std::is_same_v<T, float>)
    if (stride == count) return from;
  for (std::size_t j = 0; j < blocks; ++j) copy(from + j * stride, count, to + j * count);
  return to;
}

template <class T>
void all_reduce(Communicator& comm, ir::Group group, std::span<float> data, float* scratch, ir::Lane lane) {
  const auto members = static_cast<std::size_t>(comm.group_size(group));
  const auto own = static_cast<std::size_t>(comm.group_rank(group));
  if (members == 1) return;
  // What is packed as two bytes finds room where four were foreseen.
  T* const received = reinterpret_cast<T*>(scratch);

  std::size_t begin = 0;
  while (data.size() - begin >= members) {
    const std::size_t block = std::min(kChunk, (data.size() - begin) / members);
    float* part = data.data() + begin;
    const T* sent = pack(part, members, block, block, received + members * block);
    comm.all_to_all(group, sent, received, block * sizeof(T), lane);
    sum_blocks(received, members, block, part + own * block);
    comm.all_gather(group, part + own * block, part, block * sizeof(float), lane);
    begin += members * block;
  }

  // Fewer elements than members are left: each member gets all of them from all, and sums them itself.
  const std::size_t left = data.size() - begin;
  if (left == 0) return;
  const T* sent = pack(data.data() + begin, 1, left, left, received + members * left);
  comm.all_gather(group, sent, received, left * sizeof(T), lane);
  sum_blocks(received, members, left, data.data() + begin);
}

template <class T>
void reduce_scatter(Communicator& comm, ir::Group group, std::span<float> data, float* scratch, ir::Lane lane) {
  const auto members = static_cast<std::size_t>(comm.group_size(group));
  const auto own = static_cast<std::size_t>(comm.group_rank(group));
  check_equal_blocks(comm, group, data.size());
  if (members == 1) return;
  T* const received = reinterpret_cast<T*>(scratch);

  const std::size_t block = data.size() / members;
  for (std::size_t begin = 0; begin < block; begin += kChunk) {
    const std::size_t count = std::min(kChunk, block - begin);
    const T* sent = pack(data.data() + begin, members, block, count, received + members * count);
    comm.all_to_all(group, sent, received, count * sizeof(T), lane);
    sum_blocks(received, members, count, data.data() + own * block + begin);
  }
}

}  // namespace

std::size_t Communicator::scratch_bytes() const {
  std::size_t count = 0;
  for (const std::vector<float>& scratch : scratch_) count += scratch.size();
  return count * sizeof(float);
}

float* Communicator::scratch_for(std::int64_t elements, ir::Lane lane) {
  return grow(scratch_[static_cast<std::size_t>(lane)], static_cast<std::size_t>(elements));
}

void Communicator::all_reduce_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) {
  float* scratch = scratch_for(ir::all_reduce_scratch(group_size(group), elements(data)), lane);
  if (payload == Payload::Bf16) return all_reduce<Bf16>(*this, group, data, scratch, lane);
  all_reduce<float>(*this, group, data, scratch, lane);
}

void Communicator::reduce_scatter_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) {
  float* scratch = scratch_for(ir::reduce_scatter_scratch(group_size(group), elements(data)), lane);
  if (payload == Payload::Bf16) return reduce_scatter<Bf16>(*this, group, data, scratch, lane);
  reduce_scatter<float>(*this, group, data, scratch, lane);
}

}  // namespace fem::exec
