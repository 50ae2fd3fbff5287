#include "ir/builder.hpp"

namespace fem::ir {
namespace {

Action with_peer(ActionKind kind, int stage, int microbatch, int peer) {
  Action a = action(kind, stage, microbatch);
  a.peer = static_cast<std::int16_t>(peer);
  return a;
}

Action with_group(Action a, Group group) {
  a.group = group;
  return a;
}

}  // namespace

Action action(ActionKind kind) {
  Action a;
  a.kind = kind;
  a.lane = info(kind).lane;
  return a;
}

Action action(ActionKind kind, int stage) {
  Action a = action(kind);
  a.stage = static_cast<std::int16_t>(stage);
  return a;
}

Action action(ActionKind kind, int stage, int microbatch) {
  Action a = action(kind, stage);
  a.microbatch = microbatch;
  return a;
}

Action recv_forward(int stage, int microbatch, int from) {
  return with_peer(ActionKind::RecvForward, stage, microbatch, from);
}
Action send_forward(int stage, int microbatch, int to) {
  return with_peer(ActionKind::SendForward, stage, microbatch, to);
}
Action recv_backward(int stage, int microbatch, int from) {
  return with_peer(ActionKind::RecvBackward, stage, microbatch, from);
}
Action send_backward(int stage, int microbatch, int to) {
  return with_peer(ActionKind::SendBackward, stage, microbatch, to);
}

Action forward(int stage, int microbatch) { return action(ActionKind::Forward, stage, microbatch); }
Action backward(int stage, int microbatch) { return action(ActionKind::Backward, stage, microbatch); }
Action backward_input(int stage, int microbatch) { return action(ActionKind::BackwardInput, stage, microbatch); }
Action backward_weight(int stage, int microbatch) { return action(ActionKind::BackwardWeight, stage, microbatch); }

Action zero_grad(int stage) { return action(ActionKind::ZeroGrad, stage); }
Action reduce_loss(Group group) { return with_group(action(ActionKind::ReduceLoss), group); }
Action reduce_replica_grad(int stage, Group group) {
  return with_group(action(ActionKind::ReduceReplicaGrad, stage), group);
}
Action reduce_tied_grad(int stage, Group group) { return with_group(action(ActionKind::ReduceTiedGrad, stage), group); }
Action all_reduce(int stage, Group group) { return with_group(action(ActionKind::AllReduce, stage), group); }
Action reduce_scatter(int stage, Group group) { return with_group(action(ActionKind::ReduceScatter, stage), group); }
Action grad_norm(Group group) { return with_group(action(ActionKind::GradNorm), group); }
Action clip_grad(int stage) { return action(ActionKind::ClipGrad, stage); }

Action optimizer_step(int stage) {
  Action a = action(ActionKind::OptimizerStep, stage);
  a.flags |= Action::kIfFinite;
  return a;
}

void append_batch(std::vector<Action>& actions, std::initializer_list<Action> halves) {
  for (Action half : halves) {
    half.flags |= Action::kJoined;
    actions.push_back(half);
  }
  if (halves.size() > 0) actions.back().flags &= static_cast<std::uint8_t>(~Action::kJoined);
}

}  // namespace fem::ir
