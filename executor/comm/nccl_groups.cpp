#include "executor/comm/nccl_groups.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

constexpr std::chrono::seconds kAbortPatience{1};

}  // namespace

void check_nccl(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return;
  throw ExecutionError(std::string(call) + ": " + ncclGetErrorString(code) + " (" + ncclGetLastError(nullptr) + ")");
}

std::string NcclGroups::new_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof(id.internal)};
}

// By way of the default constructor: then the destructor runs where a call below fails.
NcclGroups::NcclGroups(const Topology& topology, int rank, const std::string& id) : NcclGroups() {
  ncclUniqueId unique;
  FEM_CHECK(id.size() == sizeof(unique.internal), "an NCCL id of " + std::to_string(id.size()) + " bytes");
  std::memcpy(unique.internal, id.data(), sizeof(unique.internal));
  check_nccl(ncclCommInitRank(&root_, topology.size(), unique, rank), "ncclCommInitRank");

  for (int g = 0; g < ir::kGroups; ++g) {
    NcclGroup& group = groups_[static_cast<std::size_t>(g)];
    group.ranks = topology.members(static_cast<ir::Group>(g), rank);
    group.member = static_cast<int>(std::find(group.ranks.begin(), group.ranks.end(), rank) - group.ranks.begin());
    // A group of one has no communicator, but its rank takes part in the split. The first member names the group.
    const int color = group.ranks.size() == 1 ? NCCL_SPLIT_NOCOLOR : group.ranks.front();
    for (int lane = 0; lane < ir::kLanes; ++lane)
      if (static_cast<ir::Lane>(lane) != ir::Lane::Copy)
        check_nccl(ncclCommSplit(root_, color, rank, &group.comms[static_cast<std::size_t>(lane)], nullptr),
                   "ncclCommSplit");
  }
}

std::vector<ncclComm_t> NcclGroups::all() const {
  std::vector<ncclComm_t> comms;
  for (const NcclGroup& group : groups_)
    for (ncclComm_t comm : group.comms)
      if (comm) comms.push_back(comm);
  if (root_) comms.push_back(root_);
  return comms;
}

NcclGroups::~NcclGroups() {
  if (aborted_) return;
  for (ncclComm_t comm : all()) ncclCommDestroy(comm);
}

NcclGroups::Use::Use(NcclGroups& groups) : groups_(groups) {
  ++groups_.uses_;
  if (!groups_.aborted_) return;
  --groups_.uses_;
  throw ExecutionError("NCCL was aborted");
}

// Either a Use sees aborted_, or this sees the Use.
void NcclGroups::abort() noexcept {
  std::lock_guard lock(mutex_);
  if (aborted_.exchange(true)) return;
  const auto deadline = std::chrono::steady_clock::now() + kAbortPatience;
  while (uses_ > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  for (ncclComm_t comm : all()) ncclCommAbort(comm);
}

std::string NcclGroups::async_error() const {
  std::lock_guard lock(mutex_);
  if (aborted_) return {};
  for (ncclComm_t comm : all()) {
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess && state != ncclInProgress)
      return ncclGetErrorString(state);
  }
  return {};
}

}  // namespace fem::exec
