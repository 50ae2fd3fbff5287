// What a schedule file of torch.distributed.pipelining must hold, checked without a configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/placement.hpp"
#include "compiler/torch_csv.hpp"

namespace fem::compiler {

// What a file that passed the check is.
struct TorchShape {
  std::int64_t microbatches = 0;
  std::vector<int> rank;               // of each stage
  std::optional<Placement> placement;  // none: the stages lie neither as a loop nor as a v
  std::int64_t unit_steps = 0;         // end of the last cell where each takes one step and a receive ends no earlier
                                       // than its send, as torch's simulator counts
  int stages() const { return static_cast<int>(rank.size()); }
};

// "0 1 1 0": the rank of each stage.
std::string ranks_text(const TorchShape& shape);

// Checks that
//  - every stage lies on one rank and none is missing;
//  - every microbatch runs once forward and once backward, as B or as I and W, through every stage, in this order.
//  Their
//    number is what most stages run forward;
//  - with communication: every tensor that crosses ranks is sent once and received once, after its producer and before
//    its consumer, and any two ranks send and receive in the same order;
//  - UNSHARD, RESHARD and REDUCE_GRAD make sense where they stand;
//  - no ranks wait for each other in a circle.
// The validator of torch.distributed.pipelining passes over duplicates, microbatches out of range, B beside I and W,
// and circles; its 1F1B export shifts the last rank's forwards by one, which has a message of its own.
std::optional<TorchShape> check_torch_csv(const TorchFile& file, ir::DiagnosticSink& sink);

// Parts of the check, in this order; later ones rely on what the earlier ones found right. They report to `faults`.

// Fills shape.rank.
void check_torch_stages(const TorchFile& file, TorchShape& shape, TorchFaults& faults);
// Fills shape.microbatches.
void check_torch_operations(const TorchFile& file, TorchShape& shape, TorchFaults& faults);
void check_torch_shards(const TorchFile& file, const TorchShape& shape, TorchFaults& faults);
void check_torch_channels(const TorchFile& file, const TorchShape& shape, TorchFaults& faults);
// Fills shape.unit_steps.
void check_torch_progress(const TorchFile& file, TorchShape& shape, TorchFaults& faults);

}  // namespace fem::compiler
