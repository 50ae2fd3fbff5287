#include "ir/lane_uses.hpp"

#include <array>

#include "ir/memory_blocks.hpp"
#include "ir/verify_resources.hpp"

namespace fem::ir {

using namespace verifying;

LaneUses lane_uses(const Plan& plan, std::size_t program, std::size_t rank) {
  const Layout layout(plan);
  const Subject subject{plan, layout, program};
  const RankResources resources(subject, rank);
  const UseTable table = all_uses();
  const std::vector<Action>& actions = subject.program().ranks[rank].actions;
  LaneUses result;
  result.resources = static_cast<std::uint32_t>(resources.size());
  std::vector<std::size_t> batch_at(actions.size());                  // by first action
  std::array<std::vector<std::size_t>, kLanes> lanes;                 // batches
  for (std::size_t i = 0; i < actions.size();) {
    const std::size_t n = batch_size(actions, i);
    batch_at[i] = result.batches.size();
    lanes[lane_index(actions[i].lane)].push_back(result.batches.size());
    BatchUses& batch = result.batches.emplace_back();
    for (std::size_t k = i; k < i + n; ++k) {
      const Uses& uses = table[static_cast<std::size_t>(actions[k].kind)];
      const auto collect = [&](const std::vector<ResourceKind>& kinds, std::vector<std::uint32_t>& out) {
        for (const ResourceKind kind : kinds) {
          resources.each(actions[k], kind, [&](std::int64_t r, const ResourceName&) {
            out.push_back(static_cast<std::uint32_t>(r));
          });
        }
      };
      collect(uses.reads, batch.reads);
      collect(uses.changes, batch.changes);
    }
    i += n;
  }
  const RankBlocks all = memory_blocks(plan, subject.program(), rank);
  for (std::size_t b = 0; b < all.blocks.size(); ++b) {
    const MemoryBlock& block = all.blocks[b];
    const auto number = static_cast<std::uint32_t>(b);
    result.blocks.push_back(block.bytes);
    result.batches[batch_at[all.birth_action(block)]].begins.push_back(number);
    for (std::size_t l = 0; l < block.uses.size(); ++l) {
      if (block.uses[l] > 0) result.batches[lanes[l][block.uses[l] - 1]].ends.push_back(number);
    }
  }
  return result;
}

}  // namespace fem::ir
