// Ranks as processes with a GPU each. Calls are issued on the stream of their lane and return.
#include <mutex>

#include "executor/comm/checks.hpp"
#include "executor/comm/nccl_entry.hpp"
#include "executor/comm/nccl_groups.hpp"
#include "executor/comm/nccl_rendezvous.hpp"
#include "executor/comm/nccl_watchdog.hpp"
#include "executor/error.hpp"
#include "executor/lanes/cuda_lanes.hpp"

namespace fem::exec {
namespace {

int device_count() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0)
    throw ExecutionError(
        "no GPU: " + std::string(code == cudaSuccess ? "CUDA finds no device" : cudaGetErrorString(code)) +
        "; use --device cpu with --backend local or mpi");
  return count;
}

int own_device(const LaunchEnvironment& launch) {
  const int count = device_count();
  if (launch.local_rank >= count)
    throw ExecutionError("local rank " + std::to_string(launch.local_rank) + " has no GPU of its own: this host has " +
                             std::to_string(count), launch.rank);
  return launch.local_rank;
}

// Device memory for the barrier's sum.
class DeviceWord {
 public:
  DeviceWord() {
    check_cuda(cudaMalloc(&data_, sizeof(float)), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0, sizeof(float)), "cudaMemset");
  }
  ~DeviceWord() { cudaFree(data_); }
  DeviceWord(const DeviceWord&) = delete;
  DeviceWord& operator=(const DeviceWord&) = delete;
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

// From ncclGroupStart to ncclGroupEnd, which has to come where a call in between fails too: the thread's later calls
// would never be launched.
class GroupCalls {
 public:
  GroupCalls() { check_nccl(ncclGroupStart(), "ncclGroupStart"); }
  ~GroupCalls() {
    if (open_) ncclGroupEnd();
  }
  GroupCalls(const GroupCalls&) = delete;
  GroupCalls& operator=(const GroupCalls&) = delete;
  void end() {
    open_ = false;
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  }

 private:
  bool open_ = true;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Topology& topology, const LaunchEnvironment& launch, const CommOptions& options)
      : topology_(topology), rank_(launch.rank), lanes_(own_device(launch)), rendezvous_(launch, options.timeout),
        groups_(topology, rank_, rendezvous_.share("nccl", rank_ == 0 ? NcclGroups::new_id() : std::string())),
        watchdog_(lanes_.device(), groups_, rendezvous_, progress(),
                  "rank " + std::to_string(rank_) + " (" + topology.place(rank_) + ")", options.timeout) {}

  int rank() const override { return rank_; }
  int size() const override { return topology_.size(); }
  int group_size(ir::Group group) const override { return static_cast<int>(groups_[group].ranks.size()); }
  int group_rank(ir::Group group) const override { return groups_[group].member; }

  void exchange(std::span<const P2pHalf> halves, ir::Lane lane) override;
  void all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override;
  void all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override;
  void broadcast(ir::Group group, int root, void* data, std::size_t bytes, ir::Lane lane) override;
  void barrier(ir::Group group) override;
  // NCCL's own sums: the same bits on every member and run to run, but not in group order. Of bf16 it would add in
  // bf16; summing in fp32 takes a kernel of our own.
  void all_reduce_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) override;
  void reduce_scatter_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) override;

  void fail(const std::string& reason) noexcept override { watchdog_.fail(reason); }

 private:
  [[noreturn]] void refuse_bf16() const {
    throw ExecutionError("precision.reduce=bf16 is not executed on GPUs by this version; use fp32", rank_);
  }
  ncclComm_t comm(ir::Group group, ir::Lane lane) const;
  void check_alive(ir::Lane lane);
  template <class Call>
  void located(ir::Lane lane, const Call& call);
  template <class Call>
  void issue(const Operation& operation, ir::Lane lane, const Call& call);
  void copy(void* to, const void* from, std::size_t bytes, ir::Lane lane);

  Topology topology_;
  int rank_;
  CudaLanes lanes_;
  Rendezvous rendezvous_;
  NcclGroups groups_;
  NcclWatchdog watchdog_;
  DeviceWord word_;
};

ncclComm_t NcclCommunicator::comm(ir::Group group, ir::Lane lane) const {
  const ncclComm_t comm = groups_[group].comms[static_cast<std::size_t>(lane)];
  FEM_CHECK(comm != nullptr, "lane " + std::string(ir::name(lane)) + " has no NCCL communicator for group " +
                                 std::string(ir::name(group)));
  return comm;
}

void NcclCommunicator::check_alive(ir::Lane lane) {
  if (!watchdog_.failed()) return;
  throw ExecutionError("stopped because of a failure: " + watchdog_.failure(), rank_, progress().step(lane),
                       progress().action(lane), topology_.place(rank_));
}

// An error of the call says where this rank stands, and why the world ended where it has: calls fail after an abort.
template <class Call>
void NcclCommunicator::located(ir::Lane lane, const Call& call) {
  check_alive(lane);
  try {
    call();
  } catch (const ExecutionError& error) {
    if (error.rank() >= 0) throw;
    check_alive(lane);
    throw ExecutionError(error.message(), rank_, progress().step(lane), progress().action(lane),
                         topology_.place(rank_));
  }
}

// `call` gives the lane's stream work. It may come from a thread that has not met CUDA yet.
template <class Call>
void NcclCommunicator::issue(const Operation& operation, ir::Lane lane, const Call& call) {
  located(lane, [&] {
    const NcclGroups::Use use(groups_);
    CudaLanes::use(lanes_.device());
    const cudaStream_t stream = lanes_.stream(lane);
    call(stream);
    watchdog_.issued(operation, lane, stream);
  });
}

void NcclCommunicator::copy(void* to, const void* from, std::size_t bytes, ir::Lane lane) {
  located(lane, [&] {
    if (to == from || bytes == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, lanes_.stream(lane)), "cudaMemcpyAsync");
  });
}

void NcclCommunicator::exchange(std::span<const P2pHalf> halves, ir::Lane lane) {
  if (halves.empty()) return;
  check_halves(*this, halves);
  const P2pHalf& first = halves[0];
  const Operation operation{.kind = OperationKind::exchange, .send = first.send, .peer = first.peer, .tag = first.tag,
                            .bytes = first.bytes, .halves = static_cast<std::uint32_t>(halves.size())};
  issue(operation, lane, [&](cudaStream_t stream) {
    const ncclComm_t world = comm(ir::Group::world, lane);
    GroupCalls calls;
    for (const P2pHalf& half : halves)
      if (half.send)
        check_nccl(ncclSend(half.data, half.bytes, ncclInt8, half.peer, world, stream), "ncclSend");
      else
        check_nccl(ncclRecv(half.data, half.bytes, ncclInt8, half.peer, world, stream), "ncclRecv");
    calls.end();
  });
}

void NcclCommunicator::all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) {
  if (group_size(group) == 1) return copy(recv, send, bytes, lane);
  issue({.kind = OperationKind::all_gather, .group = group, .bytes = bytes}, lane, [&](cudaStream_t stream) {
    check_nccl(ncclAllGather(send, recv, bytes, ncclInt8, comm(group, lane), stream), "ncclAllGather");
  });
}

void NcclCommunicator::all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) {
  if (group_size(group) == 1) return copy(recv, send, bytes, lane);
  issue({.kind = OperationKind::all_to_all, .group = group, .bytes = bytes}, lane, [&](cudaStream_t stream) {
    const ncclComm_t own = comm(group, lane);
    GroupCalls calls;
    for (int member = 0; member < group_size(group); ++member) {
      const std::size_t at = static_cast<std::size_t>(member) * bytes;
      check_nccl(ncclSend(static_cast<const char*>(send) + at, bytes, ncclInt8, member, own, stream), "ncclSend");
      check_nccl(ncclRecv(static_cast<char*>(recv) + at, bytes, ncclInt8, member, own, stream), "ncclRecv");
    }
    calls.end();
  });
}

void NcclCommunicator::broadcast(ir::Group group, int root, void* data, std::size_t bytes, ir::Lane lane) {
  check_root(*this, group, root);
  if (group_size(group) == 1) return check_alive(lane);
  issue({.kind = OperationKind::broadcast, .group = group, .peer = root, .bytes = bytes}, lane,
        [&](cudaStream_t stream) {
          check_nccl(ncclBroadcast(data, data, bytes, ncclInt8, root, comm(group, lane), stream), "ncclBroadcast");
        });
}

// Blocks the host: a sum over one word on the collective lane, and a wait for the stream.
void NcclCommunicator::barrier(ir::Group group) {
  const ir::Lane lane = ir::Lane::Collective;
  if (group_size(group) == 1) return check_alive(lane);
  issue({.kind = OperationKind::barrier, .group = group}, lane, [&](cudaStream_t stream) {
    check_nccl(ncclAllReduce(word_.get(), word_.get(), 1, ncclFloat, ncclSum, comm(group, lane), stream),
               "ncclAllReduce");
  });
  located(lane, [&] { watchdog_.drain(lane); });
  check_alive(lane);
}

void NcclCommunicator::all_reduce_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) {
  if (payload == Payload::Bf16) refuse_bf16();
  if (group_size(group) == 1 || data.empty()) return check_alive(lane);
  issue({.kind = OperationKind::all_reduce, .group = group, .bytes = data.size_bytes()}, lane,
        [&](cudaStream_t stream) {
          check_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, ncclSum, comm(group, lane),
                                   stream),
                     "ncclAllReduce");
        });
}

void NcclCommunicator::reduce_scatter_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) {
  if (payload == Payload::Bf16) refuse_bf16();
  check_equal_blocks(*this, group, data.size());
  if (group_size(group) == 1 || data.empty()) return check_alive(lane);
  const std::size_t block = data.size() / static_cast<std::size_t>(group_size(group));
  float* own = data.data() + static_cast<std::size_t>(group_rank(group)) * block;
  issue({.kind = OperationKind::reduce_scatter, .group = group, .bytes = block * sizeof(float)}, lane,
        [&](cudaStream_t stream) {
          check_nccl(ncclReduceScatter(data.data(), own, block, ncclFloat, ncclSum, comm(group, lane), stream),
                     "ncclReduceScatter");
        });
}

}  // namespace
}  // namespace fem::exec

int fem_cuda_device_count() { return fem::exec::device_count(); }

fem::exec::Communicator* fem_nccl_communicator(const fem::exec::Topology& topology,
                                               const fem::exec::LaunchEnvironment& launch,
                                               const fem::exec::CommOptions& options) {
  return new fem::exec::NcclCommunicator(topology, launch, options);
}
