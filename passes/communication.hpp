// Communication lowering: from the schedule's order of forwards and backwards to one with sends and receives that
// cannot block, each rank issuing its communication serially under rendezvous.
//
// Each receive starts directly before its consumer and each send directly after its producer, only where the
// neighbouring stage is on another rank. Then the programs are run. Where ranks wait for each other in a cycle:
//  1. every rank of the cycle that is blocked in a send, and that the rank before it in the cycle is blocked sending
//  to,
//     takes the receive of that send into its own send's batch;
//  2. in a cycle without such a rank, every rank that is blocked in a receive while the rank before it is blocked
//     sending to it takes that receive first, as an action of its own. This is what puts receives into the sender's
//     order where producer and consumer differ in order; the early one lies in its buffer until its consumer.
// A blocked rank waits for exactly one half, so cycles are disjoint and the result does not depend on the order in
// which ranks run. A moved receive meets the send that its sender is blocked in, which is the sender's next one to this
// rank: between any two ranks, sends and receives have the same order. The run is itself a complete execution of the
// result, so the result cannot block. A cycle of receives alone is a contradiction in the schedule's order: an error.
#pragma once

#include <span>

#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"

namespace fem::passes {

// Puts sends and receives into one program at stage level. Time is linear in the number of actions, plus the number of
// ranks for each time that all of them are blocked. False: the error is in the sink and the program is unchanged.
bool lower_communication(std::span<const ir::Stage> stages, ir::Program& program, ir::DiagnosticSink& sink);

}  // namespace fem::passes
