#include <algorithm>
#include <map>
#include <numeric>

#include "ir/memory_blocks.hpp"
#include "ir/reduction_scratch.hpp"
#include "ir/replicas.hpp"
#include "ir/unit_sizes.hpp"

namespace fem::ir {
namespace {

std::int64_t workspace(const Plan& plan, const Program& program, std::size_t rank) {
  const UnitSizeTable sizes = unit_sizes(plan.settings);
  std::int64_t most = 0;
  for (const Action& a : program.ranks[rank].actions) {
    if (a.stage < 0) continue;
    each_unit(plan.stages[static_cast<std::size_t>(a.stage)], a, [&](int unit) {
      most = std::max(most, workspace_bytes(sizes_of(sizes, plan.settings, unit), a.kind));
    });
  }
  return most;
}

}  // namespace

KindBytes persistent_bytes(const Plan& plan, std::size_t rank) {
  const Settings& settings = plan.settings;
  const UnitDims dims = unit_dims(settings);
  const std::int64_t format = unit_formats(settings).compute, zero = settings.parallel.zero;
  const int pieces = ir::pieces(settings);
  KindBytes bytes{};
  const auto of = [&](MemoryKind kind) -> std::int64_t& { return bytes[static_cast<std::size_t>(kind)]; };
  const bool shared = plan.level < Level::Lane;  // one buffer for all units; at level lane the arena has room
  std::int64_t most_gathered = 0, most_reduced = 0;
  each_unit_of_rank(plan.stages, rank, [&](int unit) {
    const UnitKind kind = unit_kind(settings, unit);
    const std::int64_t whole = flat_elements(kind, dims, pieces), owned = zero > 0 ? whole / pieces : whole;
    if (zero < 3) of(MemoryKind::Parameters) += format * whole;
    if (zero == 3) most_gathered = std::max(most_gathered, format * whole);
    if (zero == 3 || format != 4) of(MemoryKind::Masters) += 4 * owned;
    if (!offloads_optimizer(settings)) of(MemoryKind::Optimizer) += 8 * owned;
    if (reduced_once(settings, kind)) {
      of(MemoryKind::Gradients) += 4 * whole;
    } else {
      of(MemoryKind::Gradients) += 4 * owned;
      most_reduced = std::max(most_reduced, 4 * whole);
    }
  });
  if (!gathers_into_blocks(plan)) of(MemoryKind::Parameters) += most_gathered;
  if (shared) of(MemoryKind::Gradients) += most_reduced;
  of(MemoryKind::Communication) = reduction_scratch_bytes(plan, rank);
  for (const Program& program : plan.programs) {
    of(MemoryKind::Workspace) = std::max(of(MemoryKind::Workspace), workspace(plan, program, rank));
  }
  return bytes;
}

std::int64_t persistent_host_bytes(const Plan& plan, std::size_t rank) {
  if (!offloads_optimizer(plan.settings)) return 0;
  const UnitSizeTable sizes = unit_sizes(plan.settings);
  std::int64_t bytes = 0;
  each_unit_of_rank(plan.stages, rank, [&](int unit) { bytes += sizes_of(sizes, plan.settings, unit).moments; });
  return bytes;
}

MemoryPeak memory_peak(const Plan& plan, const Program& program, std::size_t rank) {
  const RankBlocks all = memory_blocks(plan, program, rank);
  const std::vector<MemoryBlock>& blocks = all.blocks;
  std::vector<std::uint32_t> deaths(blocks.size());
  std::iota(deaths.begin(), deaths.end(), 0);
  std::ranges::stable_sort(deaths, {}, [&](std::uint32_t b) { return blocks[b].death; });

  MemoryPeak peak;
  peak.persistent = persistent_bytes(plan, rank);
  struct Count {
    std::int64_t now = 0, most = 0;
  };
  std::map<std::int64_t, Count> by_size;
  KindBytes now{};
  std::int64_t live = 0;
  std::size_t dead = 0;
  for (std::size_t b = 0; b < blocks.size();) {
    const std::uint32_t at = blocks[b].birth;
    for (; dead < deaths.size() && blocks[deaths[dead]].death < at; ++dead) {
      const MemoryBlock& gone = blocks[deaths[dead]];
      now[static_cast<std::size_t>(gone.kind)] -= gone.bytes;
      live -= gone.bytes;
      --by_size[gone.bytes].now;
    }
    for (; b < blocks.size() && blocks[b].birth == at; ++b) {
      now[static_cast<std::size_t>(blocks[b].kind)] += blocks[b].bytes;
      live += blocks[b].bytes;
      Count& count = by_size[blocks[b].bytes];
      count.most = std::max(count.most, ++count.now);
    }
    if (live <= peak.live) continue;
    peak.live = live;
    peak.blocks = now;
    peak.tick = at;
    peak.action = all.action[at];
  }
  for (const auto& [bytes, count] : by_size) peak.pool += bytes * count.most;
  peak.arena = program.ranks[rank].arena;
  peak.host = all.host + persistent_host_bytes(plan, rank);
  return peak;
}

}  // namespace fem::ir
