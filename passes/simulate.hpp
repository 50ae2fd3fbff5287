// Runs one program of a plan on paper: when each action starts and ends, how long ranks wait, what is in flight.
#pragma once

#include <optional>
#include <vector>

#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"
#include "passes/cost.hpp"

namespace fem::passes {

enum class Communication {
  // Each rank runs its program serially; at Level::Lane each lane of a rank does, and a batch waits for what its waits
  // name besides. A half is under way once both sides have reached their batches, and takes the transfer time; a batch
  // ends with the last of its halves. On lanes it starts with the first of them, and a collective over pipeline ranks
  // when all have come; on a serial rank both start when the rank has reached them, since it then does nothing else.
  // Needs a plan at communication level or below.
  Rendezvous,
  // Communication costs ranks no time: an action starts when its rank is free and what it needs was produced (plus the
  // transfer time where another rank produced it). Sends and receives in the plan are passed over, so that a plan at
  // stage level will do. This is what the schedule literature's bubble formulas assume.
  Asynchronous,
};

struct ActionTime {
  double start = 0, end = 0;
};

// Only forwards, backwards and recomputes count as busy and open or close a span.
struct RankTimes {
  double first_start = 0, last_end = 0;
  double busy = 0;         // time in compute actions; on lanes those of the compute lane
  double waiting = 0;      // last_end - first_start - busy
  double overlap = 0;      // on lanes: time in which the compute lane runs while data is under way on another
  int peak_in_flight = 0;  // microbatches of single stages (chunks): +1 at a forward's start, -1 at the end of Backward
                           // or BackwardWeight (forward-only programs: at the forward's end)
};

struct Bubble {
  double time = 0;        // span - ideal
  double over_ideal = 0;  // time / ideal
  double over_total = 0;  // time / span
};

struct Simulation {
  std::vector<std::vector<ActionTime>> actions;  // [rank][action]; members of a batch share their times
  std::vector<RankTimes> ranks;

  double ideal = 0;       // the largest busy time of a rank
  double makespan = 0;    // last end minus first start over all ranks
  double stage_span = 0;  // the largest of (last end - first start) of a rank, as in arXiv 2401.10241
  double step_time = 0;   // end of everything, reductions and optimizer included

  Bubble makespan_bubble() const;
  Bubble stage_span_bubble() const;
};

struct SimulateOptions {
  Communication communication = Communication::Rendezvous;
};

// Empty when the program blocks (the error names the actions that wait for each other) or a send or a producer has no
// other side. Linear in the number of actions.
std::optional<Simulation> simulate(const ir::Plan& plan, const ir::Program& program, const CostModel& costs,
                                   ir::DiagnosticSink& sink, SimulateOptions options = {});

}  // namespace fem::passes
