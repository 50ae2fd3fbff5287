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
      default:
        return 0.0;
    }
  }();
  return overlapped ? own + this->action(plan, rank, *overlapped, nullptr) : own;
}

double UnitCosts::transfer(const ir::Plan&, int, int, const ir::Action&) const { return p2p; }

}  // namespace fem::passes
