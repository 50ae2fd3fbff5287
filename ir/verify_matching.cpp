#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ir/verify_checks.hpp"
#include "ir/verify_channels.hpp"

namespace fem::ir::verifying {
namespace {

// Sends and receives of a program by channel, each in the order of its rank's program.
struct Traffic {
  std::vector<std::vector<std::uint32_t>> sends, receives;

  Traffic(const Subject& subject, const Channels& channels) : sends(channels.size()), receives(channels.size()) {
    for (const RankProgram& rank : subject.program().ranks) {
      for (std::size_t i = 0; i < rank.actions.size(); ++i) {
        const Action& a = rank.actions[i];
        if (!is_p2p(a.kind)) continue;
        (is_send(a.kind) ? sends : receives)[channels.of(a)].push_back(static_cast<std::uint32_t>(i));
      }
    }
  }
};

void check_channel(const Subject& subject, const Channels& channels, std::size_t c, const Traffic& traffic,
                   Report& report) {
  const Channel& channel = channels[c];
  const std::vector<RankProgram>& ranks = subject.program().ranks;
  const std::vector<Action>& from = ranks[channel.from].actions;
  const std::vector<Action>& to = ranks[channel.to].actions;
  const std::size_t n = std::min(traffic.sends[c].size(), traffic.receives[c].size());
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t send = traffic.sends[c][i], receive = traffic.receives[c][i];
    if (channels.meet(from[send], to[receive])) continue;
    report.action(Code::V21, {subject.index, channel.to, receive},
                  "is receive " + std::to_string(i + 1) + " from rank " + std::to_string(channel.from) +
                      ", but its send " + std::to_string(i + 1) + " to rank " + std::to_string(channel.to) + " is " +
                      report.at({subject.index, channel.from, send}) + ": receive in the order of the sends");
    return;  // what follows is shifted and would say the same again
  }
}

// The collectives of one group on one rank, in order.
std::vector<std::uint32_t> collectives(const RankProgram& rank, Group group) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < rank.actions.size(); ++i) {
    if (rank.actions[i].group == group) out.push_back(static_cast<std::uint32_t>(i));
  }
  return out;
}

// Two calls that meet: of one kind, and where replicas are reduced, of the two stages with the same parameters.
bool meet(const Layout& layout, const Action& a, const Action& b) {
  if (a.kind != b.kind) return false;
  return a.kind != ActionKind::ReduceReplicaGrad || layout.groups().reduces_together(Group::replica, a.stage, b.stage);
}

void check_group(const Subject& subject, Group group, std::span<const int> members, Report& report) {
  const std::vector<RankProgram>& ranks = subject.program().ranks;
  const auto leader = static_cast<std::size_t>(members.front());
  const std::vector<std::uint32_t> first = collectives(ranks[leader], group);
  for (const int member : members) {
    const auto r = static_cast<std::size_t>(member);
    const std::vector<std::uint32_t> mine = collectives(ranks[r], group);
    // Coverage has counted them: each rank of a group makes equally many.
    for (std::size_t i = 0; i < std::min(first.size(), mine.size()); ++i) {
      const Action &own = ranks[r].actions[mine[i]], &expected = ranks[leader].actions[first[i]];
      if (meet(subject.layout, own, expected)) continue;
      report.action(Code::V22, {subject.index, r, mine[i]},
                    "is call " + std::to_string(i + 1) + " over " + std::string(name(group)) + " on rank " +
                        std::to_string(r) + ", but that call on rank " + std::to_string(leader) + " is " +
                        report.at({subject.index, leader, first[i]}) +
                        (own.kind == expected.kind ? ": the two must be replicas of each other" : ""));
      break;
    }
  }
}

}  // namespace

void check_matching(const Subject& subject, Report& report) {
  if (subject.plan.level >= Level::Communication) {
    const Channels channels(subject.layout);
    const Traffic traffic(subject, channels);
    for (std::size_t c = 0; c < channels.size(); ++c) check_channel(subject, channels, c, traffic, report);
  }
  for (const Group group : kCrossRankGroups) {
    for (int r = 0; r < static_cast<int>(subject.program().ranks.size()); ++r) {
      const std::span<const int> members = subject.layout.groups().members(group, r);
      if (members.front() == r) check_group(subject, group, members, report);
    }
  }
}

}  // namespace fem::ir::verifying
