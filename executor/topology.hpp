// Which ranks there are, where each stands in the mesh, and who belongs to which group.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/plan.hpp"
#include "ir/rank_groups.hpp"

namespace fem::exec {

struct Coordinates {
  int pp = 0, dp = 0, cp = 0, tp = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

// The mesh of a plan: tp innermost, then cp, dp, pp outermost (facts: process layout).
class Topology {
 public:
  // ExecutionError where a size is below 1 or ep does not divide dp.
  explicit Topology(const ir::Plan& plan);
  // The mesh of a plan with one stage on each pipeline rank, in order.
  explicit Topology(const ir::Settings& settings);

  int size() const { return size_; }
  Coordinates coordinates(int rank) const;
  int rank(Coordinates at) const;

  // Global ranks of the group of that kind to which `rank` belongs, ascending; {rank} where the axis has size 1.
  // Group::tied and Group::replica: the ranks of its pipeline that ir::RankGroups joins.
  // Group::ep: the dp coordinates of one block of ep consecutive ones. Group::shard: blocks of parallel.shard replicas
  // in the order of dp_cp; Group::replicate: the replicas with the same place in their blocks.
  std::vector<int> members(ir::Group group, int rank) const;

  // "pp 1 dp 0", and cp and tp where their size is above 1.
  std::string place(int rank) const;
  // "rank 2 (pp 1 dp 0)"
  std::string rank_text(int rank) const { return "rank " + std::to_string(rank) + " (" + place(rank) + ")"; }

 private:
  Topology(const ir::Settings& settings, std::span<const ir::Stage> stages);

  int pp_, dp_, cp_, tp_, ep_;
  int shard_;  // replicas in a shard group; 0: there are none
  int size_;
  ir::RankGroups groups_;
};

}  // namespace fem::exec
