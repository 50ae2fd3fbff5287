// The rules of executor/comm/communicator.hpp, each as a function that every rank of a world runs. The same for every
// backend.
#pragma once

#include <ostream>
#include <span>
#include <vector>

#include "executor/comm/communicator.hpp"

namespace fem::exec::test {

struct Rule {
  const char* name;
  void (*run)(Communicator& comm);  // checks with EXPECT
  // Holds on NCCL too, where halves meet by their order, sums have an order of their own and lane Copy is silent.
  bool nccl = false;
};
std::span<const Rule> rules();
inline void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

// Rules of their own file.
void bf16_sums_are_ordered_sums_of_rounded_values(Communicator& comm);
void bf16_sums_keep_what_is_not_finite(Communicator& comm);

// All groups there are, and a group's global ranks, found with the communicator alone.
const std::vector<ir::Group>& groups();
std::vector<int> ranks_of(Communicator& comm, ir::Group group);

// The member's data for one call: anyone in the group can make anyone's. `member_rank` is a global rank.
inline std::uint64_t seed_of(std::uint64_t call, int member_rank) {
  return call * 1000003 + static_cast<std::uint64_t>(member_rank);
}

// A seeded program of batches, the same on all ranks: messages between random pairs with random tags and sizes, each
// rank's halves in an order of its own.
void random_batches(Communicator& comm, std::uint64_t seed, int rounds, ir::Lane lane);
// The same of collectives over random groups.
void random_collectives(Communicator& comm, std::uint64_t seed, int rounds, ir::Lane lane);

}  // namespace fem::exec::test
