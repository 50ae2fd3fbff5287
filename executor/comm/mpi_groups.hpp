// The MPI communicators of all groups of this rank.
#pragma once

#include <mpi.h>

#include <array>
#include <vector>

#include "executor/comm/operation.hpp"
#include "executor/topology.hpp"

namespace fem::exec {

struct MpiGroup {
  std::vector<int> ranks;  // global, in group order
  int member = 0;
  std::array<MPI_Comm, kChannels> comms;  // one per lane and one for barriers; null where the group has one member
};

class MpiGroups {
 public:
  // Collective: every rank creates all groups in the order of ir/groups.def, and in each all channels.
  MpiGroups(MPI_Comm world, const Topology& topology, int rank);
  void close();  // collective, in the same order

  const MpiGroup& operator[](ir::Group group) const { return groups_[static_cast<std::size_t>(group)]; }

 private:
  std::array<MpiGroup, ir::kGroups> groups_;
};

}  // namespace fem::exec
