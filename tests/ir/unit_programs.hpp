// Valid programs of single units on one rank, built without the passes, and an oracle that executes them with hashes in
// place of tensors. It shares no code with the verifier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan.hpp"

namespace fem::ir::testing {

struct UnitShape {
  int zero = 0;
  bool by_microbatch = false;  // parallel.reduce=microbatch
  bool split = false;          // BackwardInput and BackwardWeight
  bool recompute = false;      // of every block: everything, of every second one attention and SwiGLU products alone
  bool before_use = false;     // parallel.gather=forward
  bool groups = false;         // parallel.shard=2 of 4 replicas
  bool offload = false;        // memory.offload=optimizer
  int microbatches = 2;
};
std::string name(const UnitShape& shape);
std::vector<UnitShape> all_unit_shapes();

// A train and an eval program at level unit: embedding, three blocks, head.
Plan unit_plan(const UnitShape& shape);

struct UnitResult {
  std::string failure;               // why the program stopped, or ""
  std::vector<std::uint64_t> shard;  // by unit, after the program: parameters and moments
  std::uint64_t loss = 0;
  std::uint64_t held = 0;            // values still held at the end

  friend bool operator==(const UnitResult&, const UnitResult&) = default;
};
UnitResult run_units(const Plan& plan, const Program& program);

}  // namespace fem::ir::testing
