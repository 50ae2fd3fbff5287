// What must come before what in a program, from the rows of actions.def, and the longest chain through it.
#pragma once

#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"
#include "passes/cost.hpp"

namespace fem::passes {

struct DependenceEdge {
  double transfer = 0;  // time from the end of the source to the start of the target
};
using DependenceGraph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, DependenceEdge>;

struct ActionIndex {
  std::int32_t rank, action;
};

// Vertices are actions. The members of an overlapped pair share a vertex, and so do the ranks' ends of one collective
// over pipeline ranks; halves of communication have one each. Edges: def-use, use-redefine and redefine of each
// resource on its rank; a send to its receive; and, where the plan has no sends yet, a producer to the consumer on the
// other rank. Units and saved slots count as the whole stage's.
struct Dependences {
  std::vector<std::vector<std::uint32_t>> vertex;  // [rank][action]
  std::vector<ActionIndex> action;                 // [vertex]: the first of those that share it
  DependenceGraph graph;
};

enum class RankOrder {
  Free,  // data alone: what any order of the same actions must respect
  Kept,  // also the order in which each rank runs everything but communication
};

// Transfer times come from `costs`. Operands must be in range (a verified plan's are).
Dependences dependences(const ir::Plan& plan, const ir::Program& program, const CostModel& costs, RankOrder order);

struct CriticalPath {
  double length = 0;
  std::vector<ActionIndex> actions;  // in time order
};

// The longest chain of action and transfer times. With RankOrder::Kept it is as long as the program takes under free
// communication (Simulation::step_time); with RankOrder::Free it bounds every order from below. Empty: the dependences
// have a cycle, which the error says.
std::optional<CriticalPath> critical_path(const ir::Plan& plan, const ir::Program& program, const CostModel& costs,
                                          RankOrder order, ir::DiagnosticSink& sink);

}  // namespace fem::passes
