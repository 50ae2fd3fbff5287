#include "ir/rank_groups.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace fem::ir {
namespace {

// Ranks that are joined, directly or through others. A rank's entry leads to a smaller member of its group; the first
// member's is the rank itself.
using Forest = std::vector<int>;

int first_member(Forest& forest, int rank) {
  int first = rank;
  while (forest[static_cast<std::size_t>(first)] != first) first = forest[static_cast<std::size_t>(first)];
  while (rank != first) rank = std::exchange(forest[static_cast<std::size_t>(rank)], first);
  return first;
}

void join(Forest& forest, int a, int b) {
  const int first = first_member(forest, a), second = first_member(forest, b);
  forest[static_cast<std::size_t>(std::max(first, second))] = std::min(first, second);
}

// The stage at the end of the direction that begins with `first`.
int last_stage(std::span<const Stage> stages, std::size_t first) {
  int last = static_cast<int>(first);
  for (std::size_t steps = 0; steps < stages.size(); ++steps) {
    const int next = stages[static_cast<std::size_t>(last)].next;
    if (next < 0 || static_cast<std::size_t>(next) >= stages.size()) break;
    last = next;
  }
  return last;
}

}  // namespace

RankGroups::RankGroups(std::span<const Stage> stages, int ranks)
    : all_(static_cast<std::size_t>(ranks)), other_(stages.size(), -1), copy_(stages.size()) {
  std::iota(all_.begin(), all_.end(), 0);
  const auto rank_of = [&](int s) { return static_cast<int>(stages[static_cast<std::size_t>(s)].pp); };
  const auto exists = [&](int rank) { return rank >= 0 && rank < ranks; };
  Forest tied = all_, replica = all_;
  std::vector<bool> embedding(all_.size()), head(all_.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    copy_[s] = stage.prev < 0 || stage.next < 0;
    if (!exists(stage.pp)) continue;
    const auto r = static_cast<std::size_t>(stage.pp);
    embedding[r] = embedding[r] || stage.prev < 0;
    head[r] = head[r] || stage.next < 0;
    const int original = stage.replica_of;
    if (original < 0 || static_cast<std::size_t>(original) >= stages.size()) continue;
    other_[s] = original;
    other_[static_cast<std::size_t>(original)] = static_cast<int>(s);
    if (exists(rank_of(original))) join(replica, stage.pp, rank_of(original));
  }
  const auto holds_both = [&](int r) {
    return embedding[static_cast<std::size_t>(r)] && head[static_cast<std::size_t>(r)];
  };
  int directions = 0;
  for (std::size_t s = 0; s < stages.size() && directions < 2; ++s) {
    if (stages[s].prev >= 0 || !exists(stages[s].pp)) continue;
    ++directions;
    const int first = stages[s].pp, last = rank_of(last_stage(stages, s));
    if (exists(last) && !holds_both(first) && !holds_both(last)) join(tied, first, last);
  }
  tied_ = joined(std::move(tied));
  replica_ = joined(std::move(replica));
}

RankGroups::Joined RankGroups::joined(Forest forest) {
  Joined result{{}, std::vector<std::vector<int>>(forest.size())};
  for (std::size_t r = 0; r < forest.size(); ++r) {
    const int first = first_member(forest, static_cast<int>(r));
    result.first.push_back(first);
    result.members[static_cast<std::size_t>(first)].push_back(static_cast<int>(r));
  }
  return result;
}

std::span<const int> RankGroups::members(Group group, int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  const auto of = [r](const Joined& joined) -> std::span<const int> {
    return joined.members[static_cast<std::size_t>(joined.first[r])];
  };
  switch (group) {
    case Group::world:
    case Group::pp: return all_;
    case Group::tied: return of(tied_);
    case Group::replica: return of(replica_);
    case Group::dp:
    case Group::cp:
    case Group::tp:
    case Group::ep:
    case Group::dp_cp:
    case Group::shard:
    case Group::replicate:
    case Group::none: break;
  }
  return std::span(all_).subspan(r, 1);
}

bool RankGroups::reduces_together(Group group, int a, int b) const {
  if (a == b) return true;
  if (group == Group::replica) return other_replica(a) == b;
  return group == Group::tied && copy_[static_cast<std::size_t>(a)] && copy_[static_cast<std::size_t>(b)];
}

}  // namespace fem::ir
