// Receives are posted before the computation that comes before their use, so that a message arrives meanwhile.
#include <algorithm>
#include <vector>

#include "passes/overlap_rank.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

bool is_lone_receive(std::span<const Action> actions, std::size_t i) {
  const ActionKind kind = actions[i].kind;
  return (kind == ActionKind::RecvForward || kind == ActionKind::RecvBackward) && !actions[i].joined() &&
         (i == 0 || !actions[i - 1].joined());
}

// A receive moves up over actions of its own rank's lanes compute, collective and copy, past `distance` computations,
// and stops at other communication of the pipeline. So the ranks' messages and meetings keep their order, and what
// could not block before cannot block now. It defines a new value, which nothing before it can use.
void move_up(std::vector<Action>& actions, std::size_t i, std::int64_t distance) {
  std::size_t to = i;
  while (to > 0) {
    const Action& before = actions[to - 1];
    if (ir::is_p2p(before.kind) || before.stage < 0) break;  // messages; reductions over pipeline ranks
    if (before.group == ir::Group::tied || before.group == ir::Group::replica) break;
    if (ir::is_computation(before.kind) && distance-- == 0) break;
    --to;
  }
  std::rotate(actions.begin() + static_cast<std::ptrdiff_t>(to), actions.begin() + static_cast<std::ptrdiff_t>(i),
              actions.begin() + static_cast<std::ptrdiff_t>(i) + 1);
}

}  // namespace

void receive_ahead_rank(std::vector<Action>& actions, std::int64_t distance) {
  for (std::size_t i = 0; i < actions.size() && distance > 0; ++i) {
    if (is_lone_receive(actions, i)) move_up(actions, i, distance);
  }
}

bool run_receive_ahead(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink&) {
  for (ir::Program& program : plan.programs) {
    for (ir::RankProgram& rank : program.ranks) receive_ahead_rank(rank.actions, options.integer("distance"));
  }
  return true;
}

}  // namespace fem::passes
