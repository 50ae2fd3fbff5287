// Short constructors of actions, for planners, passes and tests.
#pragma once

#include <initializer_list>
#include <vector>

#include "ir/action.hpp"

namespace fem::ir {

// An action of this kind on its row's lane, all operands absent.
Action action(ActionKind kind);
Action action(ActionKind kind, int stage);
Action action(ActionKind kind, int stage, int microbatch);

Action recv_forward(int stage, int microbatch, int from);
Action send_forward(int stage, int microbatch, int to);
Action recv_backward(int stage, int microbatch, int from);
Action send_backward(int stage, int microbatch, int to);

Action forward(int stage, int microbatch);
Action backward(int stage, int microbatch);
Action backward_input(int stage, int microbatch);
Action backward_weight(int stage, int microbatch);

Action zero_grad(int stage);
Action reduce_loss(Group group = Group::world);
Action reduce_replica_grad(int stage, Group group = Group::replica);
Action reduce_tied_grad(int stage, Group group = Group::tied);
Action all_reduce(int stage, Group group = Group::dp_cp);
Action reduce_scatter(int stage, Group group = Group::dp_cp);
Action grad_norm(Group group = Group::world);
Action clip_grad(int stage);
Action optimizer_step(int stage);  // with `if finite`

// Appends the halves as one batch: all but the last are joined to the next.
void append_batch(std::vector<Action>& actions, std::initializer_list<Action> halves);

}  // namespace fem::ir
