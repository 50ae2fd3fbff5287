#include "executor/agreement.hpp"

#include <vector>

namespace fem::exec {

Agreement agree_to_start(Communicator& comm, std::uint64_t digest, const std::string& problem) {
  struct Vote {
    std::uint64_t digest, ready;
  };
  const Vote mine{digest, problem.empty()};
  std::vector<Vote> votes(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ir::Group::world, &mine, votes.data(), sizeof(Vote));
  const auto rank = static_cast<std::size_t>(comm.rank());
  for (std::size_t r = 0; r < votes.size(); ++r)
    if (!votes[r].ready) return {false, r == rank ? problem : ""};
  for (std::size_t r = 0; r < votes.size(); ++r)
    if (votes[r].digest != votes[0].digest)
      return {false, r == rank ? "femrun: error: rank " + std::to_string(r) +
                                     " has another plan, or other settings, than rank 0: their digests differ\n"
                               : ""};
  return {true, {}};
}

}  // namespace fem::exec
