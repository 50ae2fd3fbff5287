// The reduction of losses: what every rank knows about a step after ReduceLoss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/topology.hpp"
#include "executor/units/unit.hpp"

namespace fem::exec {

// What all ranks agree on once ReduceLoss is done, with the same bits on each.
struct StepMetrics {
  double loss_sum = 0;      // of the token losses of all microbatches and replicas
  std::int64_t tokens = 0;  // valid targets among them
  bool stop = false;        // some rank was asked to stop
  double loss() const { return loss_sum / static_cast<double>(tokens); }  // NaN when tokens is 0
};

// Collects the losses of one program's microbatches on a rank and reduces them. The sum runs over replicas in group
// order and inside a replica over microbatches in their order, so its bits depend neither on pp nor on the order of
// execution.
class LossReduction {
 public:
  LossReduction(int microbatches, int pp, int replicas);

  void reset();  // before a program

  // Where the last stage puts the loss of microbatch m.
  LossSum& loss(int m) { return losses_[static_cast<std::size_t>(m)]; }

  // What the first and last stage read for microbatch m: a hash of tokens and targets. reduce() compares the two.
  void first_stage_read(int m, std::uint64_t hash) { records_[static_cast<std::size_t>(m)].first_stage = hash; }
  void last_stage_read(int m, std::uint64_t hash) { records_[static_cast<std::size_t>(m)].last_stage = hash; }

  // Over all ranks: first along the pipeline, where one rank holds each loss, then over the replicas.
  // `step` and `norm_bits`, the bits of the gradient norm of the step before, must be equal on all ranks: a difference
  // means that ranks have lost step or that replicas have drifted apart, and is an ExecutionError that names the ranks.
  StepMetrics reduce(Communicator& comm, std::int64_t step, std::uint64_t norm_bits, bool stop);

  // After reduce(): the first microbatch whose loss is not finite and the rank that computed it, "loss of microbatch m3
  // on rank 3 (pp 1 dp 1)"; "" when all are finite.
  std::string not_finite(const Topology& topology) const;

 private:
  struct Record {
    double loss = 0;
    std::int64_t tokens = 0;
    std::uint64_t first_stage = 0, last_stage = 0;
  };
  struct Head {
    std::int64_t step = 0;
    std::uint64_t norm_bits = 0;
    std::int64_t stop = 0, rank = 0;
  };
  static_assert(sizeof(Head) == sizeof(Record));
  union Entry {  // a rank's message: one head, then one record per microbatch
    Head head;
    Record record;
    Entry() : record() {}
  };

  const Entry& gathered(int member, std::size_t entry) const {
    return gathered_[static_cast<std::size_t>(member) * message_.size() + entry];
  }
  void gather(Communicator& comm, ir::Group group, int members);
  void check_heads(int members) const;
  std::int64_t stops(int members) const;
  void merge_pipeline();

  std::vector<LossSum> losses_;
  std::vector<Record> records_;
  std::vector<int> last_stage_;               // by microbatch: the pipeline coordinate that computed its loss
  std::vector<Entry> message_, gathered_;  // [1 + microbatches], [members][1 + microbatches]
  int pp_, replicas_;
};

// Hash of a microbatch's tokens and targets (both defined, int64, contiguous).
std::uint64_t hash_microbatch(const Microbatch& batch);

}  // namespace fem::exec
