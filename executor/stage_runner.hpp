// Runs the units of this rank's stages: what Forward, Backward, BackwardInput and BackwardWeight do.
#pragma once

#include <memory>
#include <vector>

#include "executor/activations.hpp"
#include "executor/metrics.hpp"
#include "executor/parameters.hpp"
#include "executor/units/unit.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

class StageRunner {
 public:
  // Makes the units of the stages in `parameters`. All references must outlive the runner.
  StageRunner(const ir::Plan& plan, Parameters& parameters, const ParallelContext& context, Activations& activations);

  // Input (or the batch) -> output and saved tensors, or the loss. `keep`: a backward will follow.
  void forward(int stage, int m, const Microbatch& batch, bool keep, LossReduction& losses);

  // Gradient of the output and saved tensors -> gradient of the input, gradients added to the accumulators. Unit by
  // unit, so that the weight work of one unit at most is alive.
  void backward(int stage, int m);

  // The same in two parts: the first leaves weight work, the second consumes it.
  void backward_input(int stage, int m);
  void backward_weight(int stage, int m);

  bool has_stage(int stage) const { return local_[static_cast<std::size_t>(stage)] != nullptr; }

 private:
  struct Local {  // a stage of this rank
    StageParameters* parameters;
    std::vector<std::unique_ptr<Unit>> units;
    int previous;
    bool first, last;  // reads the batch; computes the loss
  };
  Local& local(int stage);
  void run_backward(int stage, int m, bool weights);

  Activations& activations_;
  std::vector<std::unique_ptr<Local>> local_;  // by stage; null where another rank runs it
};

}  // namespace fem::exec
