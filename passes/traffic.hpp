// How many bytes a program sends, between which ranks and over which links.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/cost_model.hpp"

namespace fem::passes {

// Messages of one pipeline from one of its ranks to another.
struct PairTraffic {
  int from = 0, to = 0;
  std::int64_t messages = 0, bytes = 0;
  LinkLevel link = LinkLevel::InNode;  // the slowest over all pipelines of the mesh
};

// Bytes that all ranks of the mesh send, by level.
struct Traffic {
  std::vector<PairTraffic> pairs;  // by (from, to); pairs without a message are left out
  LinkBytes p2p, collectives;
};

// Linear in the number of actions, plus the square of the number of pipeline ranks.
Traffic traffic(const ir::Plan& plan, const ir::Program& program, const PricedCosts& costs);

}  // namespace fem::passes
