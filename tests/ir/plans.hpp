// Valid plans of several shapes, built without the compiler and the passes.
#pragma once

#include <string>
#include <vector>

#include "ir/plan.hpp"

namespace fem::ir::testing {

enum class Order {
  AllForwardThenBackward,  // GPipe
  OneForwardOneBackward,   // 1F1B
  Split,                   // 1F1B with BackwardInput and BackwardWeight, the latter at the end
};

enum class Placement {
  Loop,           // one stage on each rank
  V,              // two stages on each rank, the first half going down, the second coming back
  Bidirectional,  // one stage on each rank and a replica of it on rank pp - 1 - r, for half of the microbatches each
};

struct PlanShape {
  int pp = 2;
  int microbatches = 4;
  Order order = Order::OneForwardOneBackward;
  Placement placement = Placement::Loop;
  bool tied = false;
  bool batches = true;  // neighbouring messages are joined where the verifier allows it
};

std::string name(const PlanShape& shape);

// A train and an eval program at the stage level.
Plan stage_plan(const PlanShape& shape);
// The same at the communication level. Sends and receives are inserted in the order of one run of the whole world,
// which is an order that cannot deadlock.
Plan communication_plan(const PlanShape& shape);

std::vector<PlanShape> all_shapes();

}  // namespace fem::ir::testing
