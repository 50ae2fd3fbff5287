#include "executor/comm/mpi_groups.hpp"

#include <algorithm>

#include "executor/comm/mpi_support.hpp"

namespace fem::exec {

MpiGroups::MpiGroups(MPI_Comm world, const Topology& topology, int rank) {
  for (int g = 0; g < ir::kGroups; ++g) {
    MpiGroup& group = groups_[static_cast<std::size_t>(g)];
    group.ranks = topology.members(static_cast<ir::Group>(g), rank);
    group.member = static_cast<int>(std::find(group.ranks.begin(), group.ranks.end(), rank) - group.ranks.begin());
    group.comms.fill(MPI_COMM_NULL);

    // The first member's rank names the group among those of its kind.
    MPI_Comm& first = group.comms[0];
    check_mpi(MPI_Comm_split(world, group.ranks.front(), rank, &first), "MPI_Comm_split");
    if (group.ranks.size() == 1) {
      MPI_Comm_free(&first);
      continue;
    }
    for (std::size_t channel = 1; channel < kChannels; ++channel)
      check_mpi(MPI_Comm_dup(first, &group.comms[channel]), "MPI_Comm_dup");
  }
}

void MpiGroups::close() {
  for (MpiGroup& group : groups_)
    for (MPI_Comm& comm : group.comms)
      if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

}  // namespace fem::exec
