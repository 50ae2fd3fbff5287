// What an action costs: the one question that the simulator asks of a model of the machine.
#pragma once

#include "ir/plan.hpp"

namespace fem::passes {

// Times are in one unit of the model's choice (slots or seconds); the simulator only adds and compares them.
class CostModel {
 public:
  virtual ~CostModel() = default;

  // Time of one action that is no point-to-point half on the rank that runs it. `overlapped` is the second member of an
  // overlapped pair (the Backward of a ForwardBackward), else null; the time is that of the pair.
  virtual double action(const ir::Plan& plan, int rank, const ir::Action& action,
                        const ir::Action* overlapped) const = 0;

  // Time from the moment when both sides are ready to the arrival of one half at the receiver.
  virtual double transfer(const ir::Plan& plan, int from, int to, const ir::Action& half) const = 0;
};

// The schedule literature's unit costs: the same for every stage, everything outside the schedule free.
class UnitCosts final : public CostModel {
 public:
  double forward = 1, backward_input = 1, backward_weight = 1;  // F, B, W; a whole Backward costs B + W
  double p2p = 0;

  UnitCosts() = default;
  UnitCosts(double f, double b, double w, double p2p_time = 0)
      : forward(f), backward_input(b), backward_weight(w), p2p(p2p_time) {}

  double action(const ir::Plan&, int rank, const ir::Action& action, const ir::Action* overlapped) const override;
  double transfer(const ir::Plan&, int from, int to, const ir::Action& half) const override;
};

}  // namespace fem::passes
