// Weight gradients later: fewer ranks wait for an input gradient, at the price of the weight work that is held longer.
//
// The weight gradients of a rank stay in their order, so that every accumulator receives the same sums in the same
// order: losses and weights keep their bits. A whole backward inside an overlapped pair cannot be split; what its stage
// has waiting runs before it.
#include <cstdint>
#include <deque>
#include <vector>

#include "ir/builder.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

class Deferral {
 public:
  explicit Deferral(std::int64_t distance) : distance_(distance) {}

  std::vector<Action> run(const std::vector<Action>& actions) {
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t size = ir::batch_size(actions, i);
      if (size > 1) {
        pair(std::span(actions).subspan(i, size));
      } else {
        single(actions[i]);
      }
      i += size;
    }
    flush(waiting_.size());
    return std::move(result_);
  }

 private:
  struct Waiting {
    Action weight;
    std::int64_t due;  // backwards of this rank after which it runs
  };

  void single(const Action& action) {
    if (action.kind == ActionKind::BackwardWeight) {
      waiting_.push_back({action, backwards_ + distance_});
    } else if (action.kind == ActionKind::Backward) {
      result_.push_back(ir::backward_input(action.stage, action.microbatch));
      waiting_.push_back({ir::backward_weight(action.stage, action.microbatch), ++backwards_ + distance_});
    } else {
      // Losses and gradients are reduced: every contribution must be there.
      if (ir::info(action.kind).has(ir::operand::kG)) flush(waiting_.size());
      backwards_ += action.kind == ActionKind::BackwardInput;
      result_.push_back(action);
    }
    flush_due();
  }

  void pair(std::span<const Action> members) {
    for (const Action& member : members) {
      if (member.kind != ActionKind::Backward) continue;
      std::size_t last = 0;
      for (std::size_t i = 0; i < waiting_.size(); ++i) {
        if (waiting_[i].weight.stage == member.stage) last = i + 1;
      }
      flush(last);
      ++backwards_;
    }
    result_.insert(result_.end(), members.begin(), members.end());
    flush_due();
  }

  void flush(std::size_t count) {
    for (; count > 0; --count) {
      result_.push_back(waiting_.front().weight);
      waiting_.pop_front();
    }
  }
  void flush_due() {
    while (!waiting_.empty() && waiting_.front().due <= backwards_) flush(1);
  }

  std::int64_t distance_, backwards_ = 0;
  std::deque<Waiting> waiting_;  // in the order of the program; `due` never falls
  std::vector<Action> result_;
};

}  // namespace

bool run_defer_weights(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink&) {
  const std::int64_t distance = options.integer("distance");
  if (distance == 0) return true;
  for (ir::Program& program : plan.programs) {
    if (program.forward_only) continue;
    for (ir::RankProgram& rank : program.ranks) rank.actions = Deferral(distance).run(rank.actions);
  }
  return true;
}

}  // namespace fem::passes
