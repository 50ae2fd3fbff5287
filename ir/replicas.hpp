// How the replicas over dp and cp divide what they hold, as parallel.zero, parallel.shard and parallel.gather say.
#pragma once

#include <cstdint>

#include "ir/plan.hpp"

namespace fem::ir {

inline std::int64_t replicas(const Settings& settings) { return settings.parallel.dp * settings.parallel.cp; }

// Groups of replicas divide parameters among themselves and are replicas of one another (hybrid sharding, HSDP). With
// parallel.zero=0 nothing is divided, with parallel.shard = dp * cp there is one group: the plan is that without.
inline bool has_shard_groups(const Settings& settings) {
  const auto& parallel = settings.parallel;
  return parallel.zero > 0 && parallel.shard > 0 && parallel.shard < replicas(settings);
}

// The equal pieces of a flat buffer of parameters: so many replicas own one each.
inline int pieces(const Settings& settings) {
  return static_cast<int>(has_shard_groups(settings) ? settings.parallel.shard : replicas(settings));
}

// Their group.
inline Group piece_group(const Settings& settings) {
  return has_shard_groups(settings) ? Group::shard : Group::dp_cp;
}

// Between programs this rank's part of the working copies alone is right; each program gathers a unit before its use.
inline bool gathers_before_use(const Settings& settings) {
  const auto& parallel = settings.parallel;
  return (parallel.zero == 1 || parallel.zero == 2) && parallel.gather == "forward";
}

// Whether gathered parameters of parallel.zero=3 have blocks of their own: at level lane, and before where some stay,
// so that what is decided there counts them. Else units share one buffer.
inline bool gathers_into_blocks(const Plan& plan) {
  return plan.level >= Level::Lane || !plan.settings.parallel.resident.empty();
}

}  // namespace fem::ir
