// What ranks say to each other: one interface, several backends (local threads, MPI processes, NCCL).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/progress.hpp"
#include "executor/topology.hpp"
#include "ir/action.hpp"

namespace fem::exec {

// One half of a batch of point-to-point communication. Sender and receiver agree on tag and bytes; a mismatch is an
// ExecutionError on both sides that names ranks, tags and sizes. Between two ranks, equal tags arrive in order.
// Halves meet by tag, so the batches of two ranks may list them in different orders. (NCCL knows no tags: there the
// order must agree, and tags and sizes go unchecked.)
struct P2pHalf {
  bool send = false;
  int peer = 0;  // global rank; never the caller's own
  std::int64_t tag = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

// What goes to the member that sums. Bf16: each member rounds its values, its own included, so that who sums an element
// does not show in it.
enum class Payload : std::uint8_t { Fp32, Bf16 };

// One rank's end of all its groups. All of them are created when the communicator is, in one fixed order.
//
// Calls block until done on the CPU; on a CUDA backend they are issued on the stream of `lane` and return.
// Sends are rendezvous: a batch completes when every half has met its other side; nothing is buffered eagerly.
// Calls on different lanes may come from different threads at the same time; calls on one lane come one at a time, and
// all ranks of a group issue a lane's collectives in the same order.
//
// In all_gather, `send` may be this rank's own block of `recv`; other overlaps are not allowed.
//
// Failure: a call that waits longer than the timeout, or learns that another rank failed, throws ExecutionError that
// names the rank and peer it waited for. After fail() every pending and later call of every reachable rank throws.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int group_size(ir::Group group) const = 0;
  virtual int group_rank(ir::Group group) const = 0;  // position of this rank in the group

  // Posts all halves together and waits for all.
  virtual void exchange(std::span<const P2pHalf> halves, ir::Lane lane = ir::Lane::P2p) = 0;

  // recv holds group_size blocks of `bytes`, in group order.
  virtual void all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes,
                          ir::Lane lane = ir::Lane::Collective) = 0;
  // send and recv hold group_size blocks of `bytes`; block i of send goes to member i.
  virtual void all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes,
                          ir::Lane lane = ir::Lane::Collective) = 0;
  virtual void broadcast(ir::Group group, int root, void* data, std::size_t bytes,
                         ir::Lane lane = ir::Lane::Collective) = 0;
  virtual void barrier(ir::Group group) = 0;

  // In place: every member ends with the same bits. Summed in group order, per element, in fp32.
  // The default divides the buffer over the members: all-to-all, ordered sum, all-gather of the sums in fp32. Scratch
  // is kept. A group of one member sends nothing, and leaves the data as they are.
  virtual void all_reduce_sum(ir::Group group, std::span<float> data, Payload payload = Payload::Fp32,
                              ir::Lane lane = ir::Lane::Collective);
  // `data` holds group_size equal blocks; block group_rank ends with the sum, the others are left undefined.
  virtual void reduce_scatter_sum(ir::Group group, std::span<float> data, Payload payload = Payload::Fp32,
                                  ir::Lane lane = ir::Lane::Collective);

  // Bytes of scratch that sums have taken and keep: ir/reduction_scratch.hpp. It is not LibTorch's memory.
  virtual std::size_t scratch_bytes() const;

  // Marks this rank as failed and tells the others why. Never throws.
  virtual void fail(const std::string& reason) noexcept = 0;

  // Where this rank stands in its program: errors carry its step and action.
  virtual Progress& progress() { return own_progress_; }

 private:
  float* scratch_for(std::int64_t elements, ir::Lane lane);

  std::vector<float> scratch_[ir::kLanes];
  Progress own_progress_;
};

struct CommOptions {
  std::chrono::milliseconds timeout{60'000};
};

}  // namespace fem::exec
