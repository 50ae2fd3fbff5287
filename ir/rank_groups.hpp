// Which pipeline coordinates meet in a group. The verifier, the passes and the communicators ask here, so that a group
// has the same members for all of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ir/plan.hpp"

namespace fem::ir {

// world and pp join all pipeline coordinates. tied joins the coordinates of the first and the last stage of a
// direction, unless a rank holds both copies of the embedding, as under placement v and bidirectional: then it adds
// them alone. replica joins the two coordinates whose stages are replicas of each other. The other groups hold ranks of
// one pipeline coordinate.
class RankGroups {
 public:
  // `ranks` pipeline coordinates. The stages may be those of a plan that is not verified: what they name and does not
  // exist is passed over.
  RankGroups(std::span<const Stage> stages, int ranks);

  // The pipeline coordinates of the group that `rank` belongs to, ascending.
  std::span<const int> members(Group group, int rank) const;

  // The stage that holds the same parameters in the other direction; -1: none.
  int other_replica(int stage) const { return other_[static_cast<std::size_t>(stage)]; }

  // A reduction over `group` on stage a adds the gradients of stage b of the same rank, too: b is a, or the other copy.
  bool reduces_together(Group group, int a, int b) const;

 private:
  struct Joined {
    std::vector<int> first;                 // by rank: the first member of its group
    std::vector<std::vector<int>> members;  // by first member
  };
  static Joined joined(std::vector<int> first);

  std::vector<int> all_;  // 0, 1, ..., ranks - 1
  Joined tied_, replica_;
  std::vector<int> other_;  // by stage
  std::vector<bool> copy_;  // by stage: holds a copy of the embedding matrix
};

}  // namespace fem::ir
