// The ranks of several processes make sure, before the first step, that all of them can start and have the same plan.
#pragma once

#include <cstdint>
#include <string>

#include "executor/comm/communicator.hpp"

namespace fem::exec {

struct Agreement {
  bool start = false;
  std::string message;  // what this rank is to tell the user: one rank of the world has one when there is no start
};

// A collective call of all ranks. `digest` is of the plan with the run's settings; `problem` is why this rank cannot
// start, or empty. The lowest rank with a problem speaks; when digests differ the lowest rank that differs from rank 0
// does.
Agreement agree_to_start(Communicator& comm, std::uint64_t digest, const std::string& problem);

}  // namespace fem::exec
