#include "passes/memory_timeline.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace fem::passes {
namespace {

struct Change {
  double time;
  std::int64_t bytes;
  std::uint32_t action;
};

// Births at the start of their tick, deaths at its end; in program order where times are equal.
std::vector<Change> changes(const ir::RankBlocks& all, std::span<const ActionTime> times) {
  const std::size_t ticks = all.action.size();
  std::vector<std::int64_t> born(ticks), dead(ticks);
  for (const ir::MemoryBlock& block : all.blocks) {
    born[block.birth] += block.bytes;
    dead[block.death] -= block.bytes;
  }
  std::vector<Change> out;
  out.reserve(2 * ticks);
  for (std::size_t first = 0; first < ticks;) {
    std::size_t end = first;
    while (end < ticks && all.action[end] == all.action[first]) ++end;
    const ActionTime& time = times[all.action[first]];
    const double part = (time.end - time.start) / static_cast<double>(end - first);
    for (std::size_t t = first; t < end; ++t) {
      const double start = time.start + part * static_cast<double>(t - first);
      if (born[t] != 0) out.push_back({start, born[t], all.action[t]});
      if (dead[t] != 0) out.push_back({t + 1 == end ? time.end : start + part, dead[t], all.action[t]});
    }
    first = end;
  }
  std::ranges::stable_sort(out, {}, &Change::time);
  return out;
}

RankMemory follow(std::span<const Change> all, const ir::KindBytes& state) {
  RankMemory memory;
  memory.state = state;
  std::int64_t now = memory.peak = ir::total(state);
  memory.points.push_back({0, now});
  for (const Change& change : all) {
    now += change.bytes;
    if (now > memory.peak) {
      memory.peak = now;
      memory.peak_time = change.time;
      memory.peak_action = static_cast<std::int32_t>(change.action);
    }
    if (memory.points.back().time == change.time) {
      memory.points.back().bytes = now;
    } else {
      memory.points.push_back({change.time, now});
    }
  }
  return memory;
}

}  // namespace

std::vector<RankMemory> memory_timeline(const ir::Plan& plan, const ir::Program& program,
                                        const Simulation& simulation) {
  std::vector<RankMemory> ranks;
  ranks.reserve(program.ranks.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const ir::RankBlocks blocks = ir::memory_blocks(plan, program, r);
    ranks.push_back(follow(changes(blocks, simulation.actions[r]), ir::persistent_bytes(plan, r)));
  }
  return ranks;
}

}  // namespace fem::passes
