// The second half of a step on one rank: what happens to gradients between the last backward and the new weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/grad_norm.hpp"
#include "executor/metrics.hpp"
#include "executor/optimizer.hpp"
#include "executor/parameters.hpp"
#include "ir/plan.hpp"
#include "ir/rank_groups.hpp"

namespace fem::exec {

class Update {
 public:
  // All references must outlive the object.
  Update(const ir::Plan& plan, Parameters& parameters, Communicator& comm, BlockPool& pool);
  ~Update() { abandon(); }
  Update(const Update&) = delete;
  Update& operator=(const Update&) = delete;

  // `loss_scale`: the power of two by which the gradients are to be divided; GradNorm and ClipGrad do.
  void begin_step(double loss_scale = 1);
  // Blocks of the pool that parameters, gradients and moments hold: 0 between programs, or a program leaks. After an
  // error abandon() gives them back.
  std::int64_t alive() const;
  void abandon();

  // ZeroGrad; unit < 0, here and below: of the whole stage. Where the gradients do not stay, they take a block.
  void zero_grad(int stage, int unit, ir::Lane lane);

  // ReduceReplicaGrad: afterwards the accumulators of both replicas of the stage hold the sum of the two, with the same
  // bits. Where one rank holds both replicas, the first call of a step adds and the second one finds it done.
  void reduce_replicas(int stage);

  // ReduceTiedGrad: afterwards the accumulators of both copies of the embedding hold the sum of the two, with the same
  // bits. The first call of a step serves all copies of this rank; others find it done.
  void reduce_tied(int stage);

  // AllReduce: sums the accumulators over the members of the group. With parallel.reduce=microbatch the sum is added to
  // the reduced gradients of the step so far.
  void all_reduce(int stage, int unit, ir::Group group);
  // ReduceScatter: likewise, for what this rank owns.
  void reduce_scatter(int stage, int unit, ir::Group group);

  // AllReduceShard: sums what reduce_scatter() left over the replicas that own the same part, in the group's order.
  void all_reduce_shard(int stage, int unit, ir::Group group);

  // Unshard and Reshard.
  void unshard(int stage, int unit, ir::Group group, ir::Lane lane);
  void reshard(int stage, int unit);

  // GradNorm: norm of the gradients divided by `tokens`; 0 when tokens is 0.
  double grad_norm(std::int64_t tokens);
  // After grad_norm(): see GradNorm.
  std::string not_finite(const Topology& topology) const;

  // ClipGrad.
  void clip(int stage, double norm, std::int64_t tokens);

  // OptimizerStep; `update` counts from 1.
  void optimizer_step(int stage, int unit, double lr, std::int64_t update);

  // ReloadOptimizer and OffloadOptimizer.
  void reload_optimizer(int stage, int unit, ir::Lane lane);
  void offload_optimizer(int stage, int unit);

 private:
  StageParameters& stage(int stage);
  void find_tied_copies();
  void sum_tied(const at::Tensor& sum);
  template <class Use>
  void each_unit(int stage, int unit, Use use);
  template <class Use>
  void each_buffer(Use use) const;  // of blocks, taken or not
  void keep_reduced(UnitParameters& unit);

  const ir::Plan& plan_;
  const ir::RankGroups groups_;
  Parameters& parameters_;
  Communicator& comm_;
  BlockPool& pool_;
  GradNorm norm_;
  std::vector<std::unique_ptr<AdamW>> optimizers_;  // by stage; null where another rank runs it
  std::vector<at::Tensor> embeddings_, heads_;      // accumulators of the tied copies on this rank
  at::Tensor tied_scratch_;                         // fp32, a piece of both copies' gradients, in pipeline order
  Payload payload_;                                 // of sums over replicas
  double loss_scale_ = 1;                           // of this step
  bool tied_reduced_ = false;
  std::vector<bool> replicas_reduced_;  // by stage, where both replicas are on this rank
};

}  // namespace fem::exec
