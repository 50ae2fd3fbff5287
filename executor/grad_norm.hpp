// The global gradient norm, with the same bits for every pipeline layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/parameters.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// Sum of squares in fp64 over blocks of fixed size, each block by the same eight running sums: a function of the values
// and their number alone.
double sum_of_squares(std::span<const float> values);

// Gathers one partial sum per parameter over the pipeline and adds them in parameter order. A tied embedding counts
// once (as the embedding's), a stage that repeats the parameters of another (`replica_of`) not at all, replicas over dp
// and cp once: they hold the same bits after their reduction.
class GradNorm {
 public:
  explicit GradNorm(const ir::Plan& plan);

  // L2 norm of the gradients as they lie in the accumulators. Not finite when any gradient is not.
  double operator()(const Parameters& parameters, Communicator& comm);

  // After a call: the first parameter in global order whose gradient is not finite, with the pipeline coordinate that
  // holds it, "model.norm.weight on pp 1"; "" when all are finite.
  std::string not_finite() const;

 private:
  const ir::Plan& plan_;
  std::vector<double> mine_, gathered_;  // [parameter], [pp rank][parameter]
};

// What ClipGrad multiplies the sums by: 1 / tokens, and limit / norm where the normalised norm exceeds a limit > 0.
double gradient_scale(double normalised_norm, std::int64_t tokens, double limit);

}  // namespace fem::exec
