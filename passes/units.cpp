// From whole stages to their units: what is gathered, reduced, recomputed and freed is a unit's.
#include <utility>
#include <vector>

#include "passes/pass.hpp"
#include "passes/sharding.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

enum class Walk : std::uint8_t { None, Up, Down };

// Units run in model order forward and in the opposite order backward.
Walk walk_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward: return Walk::Up;
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
    case ActionKind::BackwardWeight: return Walk::Down;
    case ActionKind::RecvForward:
    case ActionKind::SendForward:
    case ActionKind::RecvBackward:
    case ActionKind::SendBackward:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Recompute:
    case ActionKind::Free:
    case ActionKind::Offload:
    case ActionKind::Reload:
    case ActionKind::ZeroGrad:
    case ActionKind::ReduceLoss:
    case ActionKind::ReduceReplicaGrad:
    case ActionKind::ReduceTiedGrad:
    case ActionKind::AllReduce:
    case ActionKind::ReduceScatter:
    case ActionKind::GradNorm:
    case ActionKind::ClipGrad:
    case ActionKind::OptimizerStep: return Walk::None;
  }
  return Walk::None;
}

std::vector<Action> expand(std::span<const Action> actions, std::span<const ir::Stage> stages) {
  std::vector<Action> out;
  out.reserve(2 * actions.size());
  for (Action a : actions) {
    const Walk walk = walk_of(a.kind);
    if (walk == Walk::None) {
      out.push_back(a);
      continue;
    }
    a.flags &= static_cast<std::uint8_t>(~Action::kJoined);  // an overlapped pair: one unit after the other
    const ir::Stage& stage = stages[static_cast<std::size_t>(a.stage)];
    for (int i = 0; i < stage.units; ++i) {
      a.unit = static_cast<std::int16_t>(stage.first_unit + (walk == Walk::Up ? i : stage.units - 1 - i));
      out.push_back(a);
    }
  }
  return out;
}

}  // namespace

bool run_units(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  Sharding sharding(plan);
  for (ir::Program& program : plan.programs) {
    for (ir::RankProgram& rank : program.ranks) rank.actions = sharding.rewrite(expand(rank.actions, plan.stages));
  }
  plan.level = ir::Level::Unit;
  return true;
}

}  // namespace fem::passes
