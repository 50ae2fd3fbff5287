#include "ir/reduction_scratch.hpp"

#include <algorithm>
#include <span>

#include "ir/rank_groups.hpp"
#include "ir/replicas.hpp"
#include "ir/units.hpp"

namespace fem::ir {
namespace {

// That hold the replicas of the rank's stages, one for each direction: 1 where there are none or it holds both.
std::int64_t ranks_of_replicas(const Plan& plan, std::size_t rank) {
  // Groups cost more than all else here, and a search asks for many plans.
  if (std::ranges::all_of(plan.stages, [](const Stage& stage) { return stage.replica_of < 0; })) return 1;
  const RankGroups groups(plan.stages, static_cast<int>(plan.settings.parallel.pp));
  const std::span<const int> members = groups.members(Group::replica, static_cast<int>(rank));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(members.size()));
}

}  // namespace

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
  const std::int64_t copies = ranks_of_replicas(plan, rank);
  std::int64_t most = 0;
  each_unit_of_rank(plan.stages, rank, [&](int unit) {
    const std::int64_t whole = flat_elements(unit_kind(settings, unit), dims, static_cast<int>(pieces));
    most = std::max(most, all_reduce_scratch(copies, whole));
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
