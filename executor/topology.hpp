// Which ranks there are, where each stands in the mesh, and who belongs to which group.
#pragma once

#include <vector>

#include "ir/action.hpp"
#include "ir/settings.hpp"

namespace fem::exec {

struct Coordinates {
  int pp = 0, dp = 0, cp = 0, tp = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

// The mesh of a plan: tp innermost, then cp, dp, pp outermost (facts: process layout).
class Topology {
 public:
  explicit Topology(const ir::Settings& settings);

  int size() const { return size_; }
  Coordinates coordinates(int rank) const;
  int rank(Coordinates at) const;

  // Global ranks of the group of that kind to which `rank` belongs, ascending; {rank} where the axis has size 1.
  // Group::tied: {first pipeline rank, last pipeline rank} of the rank's pipeline ({rank} for others, and at pp=1).
  std::vector<int> members(ir::Group group, int rank) const;

 private:
  int pp_, dp_, cp_, tp_, ep_, size_;
};

}  // namespace fem::exec
