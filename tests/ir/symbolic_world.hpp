// Executes the programs of a plan with hashes in place of tensors: an oracle for the verifier that shares no code with
// it.
// Messages are matched by their order alone, as NCCL does; every rank runs its program serially.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan.hpp"

namespace fem::ir::testing {

struct WorldResult {
  std::string failure;                // why a rank stopped: undefined operand, deadlock, ranks that disagree; or ""
  std::vector<std::uint64_t> params;  // by stage, after the program
  std::vector<std::uint64_t> loss;    // by rank: the reduced metrics
  std::vector<std::uint64_t> held;    // by rank: number of tensors still held at the end

  friend bool operator==(const WorldResult&, const WorldResult&) = default;
};

// The microbatches' contributions are summed as a multiset: their order does not change the result.
WorldResult run_symbolically(const Plan& plan, const Program& program);

}  // namespace fem::ir::testing
