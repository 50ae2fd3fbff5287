#include <algorithm>
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

void check_group(const Subject& subject, Group group, const std::vector<std::size_t>& members, Report& report) {
  const std::vector<RankProgram>& ranks = subject.program().ranks;
  const std::vector<std::uint32_t> first = collectives(ranks[members.front()], group);
  for (const std::size_t r : members) {
    const std::vector<std::uint32_t> mine = collectives(ranks[r], group);
    for (std::size_t i = 0; i < std::max(first.size(), mine.size()); ++i) {
      const std::string call = "is call " + std::to_string(i + 1) + " over " + std::string(name(group)) + " on rank ";
      if (i >= mine.size() || i >= first.size()) {
        const bool longer = i < mine.size();
        const std::size_t has = longer ? r : members.front(), lacks = longer ? members.front() : r;
        report.action(Code::V22, {subject.index, has, (longer ? mine : first)[i]},
                      call + std::to_string(has) + ", but rank " + std::to_string(lacks) + " makes only " +
                          std::to_string(i));
        break;
      }
      if (ranks[r].actions[mine[i]].kind == ranks[members.front()].actions[first[i]].kind) continue;
      report.action(Code::V22, {subject.index, r, mine[i]},
                    call + std::to_string(r) + ", but that call on rank " + std::to_string(members.front()) + " is " +
                        report.at({subject.index, members.front(), first[i]}));
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
    check_group(subject, group, group_members(subject.layout, subject.program().ranks.size(), group), report);
  }
}

}  // namespace fem::ir::verifying
