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
  // NCCL's own sums: the same bits on every member and run to run, but not in group order.
  void all_reduce_sum(ir::Group group, std::span<float> data, ir::Lane lane) override;
  void reduce_scatter_sum(ir::Group group, std::span<float> data, ir::Lane lane) override;

  // NCCL would add in bf16; summing in fp32 takes a kernel of our own.
  void all_reduce_sum_bf16(ir::Group, std::span<float>, ir::Lane) override { refuse_bf16(); }
  void reduce_scatter_sum_bf16(ir::Group, std::span<float>, ir::Lane) override { refuse_bf16(); }

  void fail(const std::string& reason) noexcept override { watchdog_.fail(reason); }

 private:
  [[noreturn]] void refuse_bf16() const {
    throw ExecutionError("precision.reduce=bf16 is not executed on GPUs by this version; use fp32", rank_);
  }
  ncclComm_t comm(ir::Group group, ir::Lane lane) const;
  void check_alive(ir::Lane lane);
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

void NcclCommunicator::copy(void* to, const void* from, std::size_t bytes, ir::Lane lane) {
  if (to != from && bytes != 0)
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, lanes_.stream(lane)), "cudaMemcpyAsync");
}

void NcclCommunicator::exchange(std::span<const P2pHalf> halves, ir::Lane lane) {
  if (halves.empty()) return;
  check_halves(*this, halves);
  check_alive(lane);
  const ncclComm_t world = comm(ir::Group::world, lane);
  const cudaStream_t stream = lanes_.stream(lane);
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  for (const P2pHalf& half : halves)
    if (half.send)
      check_nccl(ncclSend(half.data, half.bytes, ncclInt8, half.peer, world, stream), "ncclSend");
    else
      check_nccl(ncclRecv(half.data, half.bytes, ncclInt8, half.peer, world, stream), "ncclRecv");
  check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  const P2pHalf& first = halves[0];
  watchdog_.issued({.kind = OperationKind::exchange, .send = first.send, .peer = first.peer, .tag = first.tag,
                    .bytes = first.bytes, .halves = static_cast<std::uint32_t>(halves.size())},
                   lane, stream);
}

void NcclCommunicator::all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) {
  check_alive(lane);
  if (group_size(group) == 1) return copy(recv, send, bytes, lane);
  const cudaStream_t stream = lanes_.stream(lane);
  check_nccl(ncclAllGather(send, recv, bytes, ncclInt8, comm(group, lane), stream), "ncclAllGather");
  watchdog_.issued({.kind = OperationKind::all_gather, .group = group, .bytes = bytes}, lane, stream);
}

void NcclCommunicator::all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) {
  check_alive(lane);
  if (group_size(group) == 1) return copy(recv, send, bytes, lane);
  const ncclComm_t own = comm(group, lane);
  const cudaStream_t stream = lanes_.stream(lane);
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  for (int member = 0; member < group_size(group); ++member) {
    const std::size_t at = static_cast<std::size_t>(member) * bytes;
    check_nccl(ncclSend(static_cast<const char*>(send) + at, bytes, ncclInt8, member, own, stream), "ncclSend");
    check_nccl(ncclRecv(static_cast<char*>(recv) + at, bytes, ncclInt8, member, own, stream), "ncclRecv");
  }
  check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  watchdog_.issued({.kind = OperationKind::all_to_all, .group = group, .bytes = bytes}, lane, stream);
}

void NcclCommunicator::broadcast(ir::Group group, int root, void* data, std::size_t bytes, ir::Lane lane) {
  check_root(*this, group, root);
  check_alive(lane);
  if (group_size(group) == 1) return;
  const cudaStream_t stream = lanes_.stream(lane);
  check_nccl(ncclBroadcast(data, data, bytes, ncclInt8, root, comm(group, lane), stream), "ncclBroadcast");
  watchdog_.issued({.kind = OperationKind::broadcast, .group = group, .peer = root, .bytes = bytes}, lane, stream);
}

// Blocks the host: a sum over one word on the collective lane, and a wait for the stream.
void NcclCommunicator::barrier(ir::Group group) {
  const ir::Lane lane = ir::Lane::Collective;
  check_alive(lane);
  if (group_size(group) == 1) return;
  const cudaStream_t stream = lanes_.stream(lane);
  check_nccl(ncclAllReduce(word_.get(), word_.get(), 1, ncclFloat, ncclSum, comm(group, lane), stream),
             "ncclAllReduce");
  watchdog_.issued({.kind = OperationKind::barrier, .group = group}, lane, stream);
  watchdog_.drain(lane);
  check_alive(lane);
}

void NcclCommunicator::all_reduce_sum(ir::Group group, std::span<float> data, ir::Lane lane) {
  check_alive(lane);
  if (group_size(group) == 1 || data.empty()) return;
  const cudaStream_t stream = lanes_.stream(lane);
  check_nccl(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, ncclSum, comm(group, lane), stream),
             "ncclAllReduce");
  watchdog_.issued({.kind = OperationKind::all_reduce, .group = group, .bytes = data.size_bytes()}, lane, stream);
}

void NcclCommunicator::reduce_scatter_sum(ir::Group group, std::span<float> data, ir::Lane lane) {
  check_equal_blocks(*this, group, data.size());
  check_alive(lane);
  if (group_size(group) == 1 || data.empty()) return;
  const std::size_t block = data.size() / static_cast<std::size_t>(group_size(group));
  const cudaStream_t stream = lanes_.stream(lane);
  float* own = data.data() + static_cast<std::size_t>(group_rank(group)) * block;
  check_nccl(ncclReduceScatter(data.data(), own, block, ncclFloat, ncclSum, comm(group, lane), stream),
             "ncclReduceScatter");
  watchdog_.issued({.kind = OperationKind::reduce_scatter, .group = group, .bytes = block * sizeof(float)}, lane,
                   stream);
}

}  // namespace
}  // namespace fem::exec

int fem_cuda_device_count() { return fem::exec::device_count(); }

fem::exec::Communicator* fem_nccl_communicator(const fem::exec::Topology& topology,
                                               const fem::exec::LaunchEnvironment& launch,
                                               const fem::exec::CommOptions& options) {
  return new fem::exec::NcclCommunicator(topology, launch, options);
}
