#include "executor/comm/local_state.hpp"

namespace fem::exec {

LocalState::LocalState(const Topology& topology, const CommOptions& options)
    : topology_(topology), options_(options) {
  const auto size = static_cast<std::size_t>(topology.size());
  for (std::size_t r = 0; r < size; ++r) {
    ranks_.push_back(std::make_unique<LocalRank>());
    for (std::size_t lane = 0; lane < ir::kLanes; ++lane)
      ranks_[r]->batches[lane].attach(static_cast<int>(r), &ranks_[r]->signals[lane]);
  }
  mailboxes_.reset(new Mailbox[ir::kLanes * size * size]);
  for (int group = 0; group < ir::kGroups; ++group) create_groups(static_cast<ir::Group>(group));
}

void LocalState::create_groups(ir::Group group) {
  auto& all = memberships_[static_cast<std::size_t>(group)];
  all.resize(ranks_.size());
  for (int r = 0; r < topology_.size(); ++r) {
    if (!all[static_cast<std::size_t>(r)].ranks.empty()) continue;
    const std::vector<int> members = topology_.members(group, r);
    std::array<std::shared_ptr<GroupMeeting>, kChannels> meetings;
    for (std::size_t channel = 0; channel < kChannels; ++channel) {
      std::vector<Signal*> signals;
      for (int member : members) signals.push_back(&rank(member).signals[channel]);
      meetings[channel] = std::make_shared<GroupMeeting>(std::move(signals));
    }
    for (std::size_t i = 0; i < members.size(); ++i)
      all[static_cast<std::size_t>(members[i])] = {.ranks = members, .member = i, .meetings = meetings};
  }
}

Mailbox& LocalState::mailbox(int from, int to, ir::Lane lane) {
  const std::size_t size = ranks_.size();
  return mailboxes_[(static_cast<std::size_t>(lane) * size + static_cast<std::size_t>(from)) * size +
                    static_cast<std::size_t>(to)];
}

LocalMembership& LocalState::membership(ir::Group group, int rank) {
  return memberships_[static_cast<std::size_t>(group)][static_cast<std::size_t>(rank)];
}

std::string LocalState::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void LocalState::fail(int failed_rank, const std::string& reason) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (failed_.load()) return;
    failure_ = "rank " + std::to_string(failed_rank) + " failed: " + reason;
    failed_.store(true);
  }
  for (auto& rank : ranks_)
    for (Signal& signal : rank->signals) signal.notify();
}

std::string LocalState::status(int of, ir::Lane lane) {
  LocalRank& peer = rank(of);
  return "rank " + std::to_string(of) + " is " + peer.progress.text(lane) + ", " + text(peer.operations);
}

}  // namespace fem::exec
