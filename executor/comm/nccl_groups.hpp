// The NCCL communicators of all groups of this rank.
#pragma once

#include <nccl.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "executor/topology.hpp"

namespace fem::exec {

// ExecutionError "ncclSend: ..." unless code is ncclSuccess.
void check_nccl(ncclResult_t code, const char* call);

struct NcclGroup {
  std::vector<int> ranks;  // global, in group order
  int member = 0;
  std::array<ncclComm_t, ir::kLanes> comms{};  // by lane; null where the group has one member, and on lane Copy
};

// Concurrent collectives need communicators of their own, so there is one per group and lane. Lane Copy never
// communicates with other ranks and has none.
class NcclGroups {
 public:
  // Collective: every rank creates the same world, then splits off all groups in the order of ir/groups.def and in each
  // the lanes in their order. `id` is rank 0's ncclUniqueId.
  NcclGroups(const Topology& topology, int rank, const std::string& id);
  ~NcclGroups();
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;

  static std::string new_id();
  const NcclGroup& operator[](ir::Group group) const { return groups_[static_cast<std::size_t>(group)]; }
  // Ends everything that is under way, from any thread. Waits for calls that hold a Use, but not for long: one that
  // hangs inside NCCL comes back because of the abort.
  void abort() noexcept;
  std::string async_error() const;  // from any thread; "" where all is well

  // Held around calls on the communicators: an abort frees them. ExecutionError where they were aborted.
  class Use {
   public:
    explicit Use(NcclGroups& groups);
    ~Use() { --groups_.uses_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    NcclGroups& groups_;
  };

 private:
  NcclGroups() = default;
  std::vector<ncclComm_t> all() const;

  ncclComm_t root_ = nullptr;
  std::array<NcclGroup, ir::kGroups> groups_;
  mutable std::mutex mutex_;  // abort() against async_error()
  std::atomic<bool> aborted_{false};
  std::atomic<int> uses_{0};
};

}  // namespace fem::exec
