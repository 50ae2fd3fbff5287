// How data-parallel replicas divide parameters, gradients and optimizer state (ZeRO), and where gradients are reduced,
// written out: both are the plan's settings, not options of a pass, since they change memory, traffic and sums.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/plan.hpp"
#include "ir/unit_sizes.hpp"
#include "passes/unit_uses.hpp"

namespace fem::passes {

class Sharding {
 public:
  explicit Sharding(const ir::Plan& plan);

  // A rank's program of units, gathers and reductions of parallel.zero, gather, resident, shard and reduce put in.
  std::vector<ir::Action> rewrite(std::span<const ir::Action> actions);

 private:
  enum class Reduce { step, microbatch, bucket };
  struct Unit {
    int stage, unit;
    bool operator==(const Unit&) const = default;
  };

  void end_of_schedule();
  void zero_grads(int stage);
  void reduce_stage(int stage);
  void gradient(const ir::Action& action, std::size_t index);
  void reduce(int stage, int unit);
  void flush_bucket();
  void update(const ir::Action& action);
  Reduce reduce_of(int unit) const;
  template <class Use>
  void each_tied(int stage, Use use);

  void gather(const ir::Action& action);
  void use_ends(const ir::Action& action, std::size_t index);
  void release();

  const ir::Plan& plan_;
  ir::UnitSizeTable sizes_;
  std::int64_t zero_, resident_bytes_, bucket_bytes_;
  bool before_use_, groups_;  // parallel.gather=forward; parallel.shard forms groups
  Reduce reduce_;

  // Of the program that is rewritten.
  std::optional<UnitUses> uses_;
  std::vector<bool> resident_, gathered_;  // by row of uses_
  std::optional<Unit> held_;               // of the units that are not resident, the one that is gathered now
  std::vector<Unit> bucket_;               // their gradients are complete and wait for the bucket's others
  std::int64_t in_bucket_ = 0;             // bytes
  std::vector<ir::Action> out_;
};

}  // namespace fem::passes
