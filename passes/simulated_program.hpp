// What the ways of simulating a program share: which actions count, and what is summed up of them.
#pragma once

#include <optional>
#include <span>

#include "passes/simulate.hpp"

namespace fem::passes::simulating {

// What a run indexes with. The verifier says it better, but simulate may be given a plan that it has not seen.
bool check_operands(const ir::Plan& plan, const ir::Program& program, ir::DiagnosticSink& sink);

// Busy time, span and microbatches in flight of one rank, whose busy batches come in the order of their times.
class SpanCount {
 public:
  void count(RankTimes& times, std::span<const ir::Action> batch, ActionTime at, bool forward_only);
  bool started() const { return started_; }  // something was busy

 private:
  int in_flight_ = 0;
  bool started_ = false;
};

// Adds ranks that have started up to the figures of the whole run.
class Summary {
 public:
  explicit Summary(Simulation& result) : result_(result) {}
  void add(RankTimes& times);

 private:
  Simulation& result_;
  double first_ = 0, last_ = 0;
  bool any_ = false;
};

// Communication::Rendezvous of a plan at Level::Lane whose operands were checked.
std::optional<Simulation> run_lanes(const ir::Plan& plan, const ir::Program& program, const CostModel& costs,
                                    ir::DiagnosticSink& sink);

}  // namespace fem::passes::simulating
