#include "ir/reduction_scratch.hpp"

#include <algorithm>

#include "ir/rank_groups.hpp"
#include "ir/replicas.hpp"
#include "ir/units.hpp"

namespace fem::ir {

std::int64_t all_reduce_scratch(std::int64_t members, std::int64_t elements) {
  if (members == 1) return 0;
  return members * std::max(std::min(kReductionChunk, elements / members), elements % members);
}

std::int64_t reduce_scatter_scratch(std::int64_t members, std::int64_t elements) {
  return members == 1 ? 0 : 2 * members * std::min(kReductionChunk, elements / members);
}

std::int64_t reduction_scratch_bytes(const Plan& plan, std::size_t rank) {
  const Settings& settings = plan.settings;
  const UnitDims dims = unit_dims(settings);
  const std::int64_t all = replicas(settings), pieces = ir::pieces(settings);
  const auto copies =  // where the other replica of the rank's stages lies on another rank
      static_cast<std::int64_t>(RankGroups(plan.stages, static_cast<int>(settings.parallel.pp))
                                    .members(Group::replica, static_cast<int>(rank))
                                    .size());
  std::int64_t most = 0;
  each_unit_of_rank(plan.stages, rank, [&](int unit) {
    const std::int64_t whole = flat_elements(unit_kind(settings, unit), dims, static_cast<int>(pieces));
    most = std::max(most, all_reduce_scratch(std::max<std::int64_t>(copies, 1), whole));
    if (settings.parallel.zero == 0) {
      most = std::max(most, all_reduce_scratch(all, whole));
    } else {
      most = std::max(most, reduce_scatter_scratch(pieces, whole));
      if (has_shard_groups(settings)) most = std::max(most, all_reduce_scratch(all / pieces, whole / pieces));
    }
  });
  return 4 * most;
}

}  // namespace fem::ir
