// What the ranks of a local world share.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/comm/local_collective.hpp"
#include "executor/comm/local_exchange.hpp"
#include "executor/comm/operation.hpp"

namespace fem::exec {

struct LocalRank {
  Progress progress;
  OperationRecords operations;
  std::array<Signal, kChannels> signals;
  std::array<LocalBatch, ir::kLanes> batches;
};

// A rank's place in one group.
struct LocalMembership {
  std::vector<int> ranks;  // global, in group order
  std::size_t member = 0;
  std::array<std::shared_ptr<GroupMeeting>, kChannels> meetings;
};

class LocalState {
 public:
  LocalState(const Topology& topology, const CommOptions& options);

  const Topology& topology() const { return topology_; }
  const CommOptions& options() const { return options_; }
  LocalRank& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  Mailbox& mailbox(int from, int to, ir::Lane lane);
  LocalMembership& membership(ir::Group group, int rank);

  const std::atomic<bool>& failed() const { return failed_; }
  std::string failure() const;  // after failed(): "rank 1 failed: ..."
  void fail(int rank, const std::string& reason) noexcept;

  // "rank 1 is at step 17, Forward s0 m4, doing nothing in the communicator"
  std::string status(int rank, ir::Lane lane);

 private:
  void create_groups(ir::Group group);

  Topology topology_;
  CommOptions options_;
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  std::unique_ptr<Mailbox[]> mailboxes_;                               // [lane][from][to]
  std::array<std::vector<LocalMembership>, ir::kGroups> memberships_;  // [group][rank]

  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // of failure_
  std::string failure_;
};

}  // namespace fem::exec
