// A plan run without data: the same interpreter, every buffer with its size and no memory behind it, on LibTorch's Meta
// device. What it finds of a rank's memory is what a run would take, whatever the size of the model.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/memory_report.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

struct DryRank : RankMemoryRow {
  std::string peak_action;  // in which the allocator's peak was reached first; "": before the first action
};

// ExecutionError where this version does not execute the plan, or the plan has no pipeline coordinate `pp`.
void check_dry_run_plan(const ir::Plan& plan, std::optional<int> pp);

// What a run of the plan would do, on one rank of each pipeline coordinate, the first of its replicas, which are alike;
// with `pp` on that coordinate alone. `steps` training steps and, where the plan names evaluation data, an evaluation
// after each: the first step takes the blocks one by one, from the second on all are there and the peak is that of any
// later step. Replaces LibTorch's allocator for Meta, for the rest of the process.
std::vector<DryRank> dry_run(const ir::Plan& plan, std::optional<int> pp = {}, int steps = 2);

// A line for each rank. What the allocator held at its peak and no buffer accounts for is "beside".
std::string dry_run_table(std::span<const DryRank> ranks);

}  // namespace fem::exec
