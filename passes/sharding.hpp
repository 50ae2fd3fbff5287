// How data-parallel replicas divide parameters, gradients and optimizer state (ZeRO), and where gradients are reduced,
// written out: both are the plan's settings, not options of a pass, since they change memory, traffic and sums.
#pragma once

#include <span>
#include <vector>

#include "ir/plan.hpp"

namespace fem::passes {

class Sharding {
 public:
  explicit Sharding(const ir::Plan& plan);

  // A rank's program of units, gathers and reductions of parallel.zero and parallel.reduce put in.
  std::vector<ir::Action> rewrite(std::span<const ir::Action> actions);

 private:
  ir::ActionKind reduction() const;
  bool once_a_step(int unit) const;
  void each_accumulated(const ir::Action& action, ir::ActionKind kind);
  void gradient(const ir::Action& action);
  void hold(const ir::Action& action);
  void release();

  struct Held {
    int stage = -1, unit = -1;
  };

  const ir::Plan& plan_;
  std::int64_t zero_;
  bool by_microbatch_;
  Held held_;  // what is gathered at this point
  std::vector<ir::Action> out_;
};

}  // namespace fem::passes
