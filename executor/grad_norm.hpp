// The global gradient norm, with the same bits for every pipeline layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/parameters.hpp"
#include "executor/topology.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// Sum of squares in fp64 over blocks of fixed size, each block by the same eight running sums: a function of the values
// and their number alone.
double sum_of_squares(std::span<const float> values);

// Every parameter is summed by the pieces in which replicas may divide it, whether they do or not; the partial sums are
// gathered and added in the order of parameters and pieces. So the bits depend on the number of replicas alone. A tied
// embedding counts once (as the embedding's), a stage that repeats the parameters of another (`replica_of`) not at all,
// replicas over dp and cp, and groups of those (parallel.shard), once: they hold the same bits after their reduction.
class GradNorm {
 public:
  explicit GradNorm(const ir::Plan& plan, ReplicaPlace replica = {});

  // L2 norm of the reduced gradients. Not finite when any gradient is not.
  double operator()(const Parameters& parameters, Communicator& comm);

  // After a call: the first parameter in global order whose gradient is not finite, with the rank that holds that part
  // of it, "model.norm.weight on rank 3 (pp 1 dp 1)"; of replicas that hold the same the first. "" when all are finite.
  std::string not_finite(const Topology& topology) const;

 private:
  void add(const UnitParameters& unit, int piece);

  const ir::Plan& plan_;
  ReplicaPlace replica_;
  std::size_t slots_;                    // parameters of the model
  std::vector<double> mine_, gathered_;  // [piece][parameter], [pp rank][piece][parameter]
};

// What ClipGrad multiplies the sums by: 1 / tokens, and limit / norm where the normalised norm exceeds a limit > 0.
double gradient_scale(double normalised_norm, std::int64_t tokens, double limit);

}  // namespace fem::exec
