#include "passes/cost.hpp"

namespace fem::passes {

double UnitCosts::action(const ir::Plan& plan, int rank, const ir::Action& action, const ir::Action* overlapped) const {
  const double own = [&] {
    switch (action.kind) {
      case ir::ActionKind::Forward:
      case ir::ActionKind::Recompute:
        return forward;
      case ir::ActionKind::Backward:
        return backward_input + backward_weight;
      case ir::ActionKind::BackwardInput:
        return backward_input;
      case ir::ActionKind::BackwardWeight:
        return backward_weight;
      case ir::ActionKind::RecvForward:
      case ir::ActionKind::SendForward:
      case ir::ActionKind::RecvBackward:
      case ir::ActionKind::SendBackward:
      case ir::ActionKind::Unshard:
      case ir::ActionKind::Reshard:
      case ir::ActionKind::Free:
      case ir::ActionKind::Offload:
      case ir::ActionKind::Reload:
      case ir::ActionKind::ZeroGrad:
      case ir::ActionKind::ReduceLoss:
      case ir::ActionKind::ReduceReplicaGrad:
      case ir::ActionKind::ReduceTiedGrad:
      case ir::ActionKind::AllReduce:
      case ir::ActionKind::ReduceScatter:
      case ir::ActionKind::AllReduceShard:
      case ir::ActionKind::GradNorm:
      case ir::ActionKind::ClipGrad:
      case ir::ActionKind::OptimizerStep:
        return 0.0;
    }
    return 0.0;
  }();
  return overlapped ? own + this->action(plan, rank, *overlapped, nullptr) : own;
}

double UnitCosts::transfer(const ir::Plan&, int, int, const ir::Action&) const { return p2p; }

}  // namespace fem::passes
