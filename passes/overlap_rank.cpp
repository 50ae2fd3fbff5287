#include "passes/overlap_rank.hpp"

#include "ir/bytes.hpp"

namespace fem::passes {

std::int64_t overlapped_bytes(const ir::Plan& plan, const ir::Program& program, std::size_t rank) {
  const auto& overlap = plan.settings.overlap;
  ir::Plan lanes;  // settings, stages and this rank are all that the questions below ask for
  lanes.settings = plan.settings;
  lanes.stages = plan.stages;
  lanes.level = ir::Level::Lane;
  ir::Program& only = lanes.programs.emplace_back();
  only.name = program.name;
  only.forward_only = program.forward_only;
  only.microbatches = program.microbatches;
  only.ranks.resize(program.ranks.size());
  ir::RankProgram& mine = only.ranks[rank];
  mine.actions = program.ranks[rank].actions;
  prefetch_rank(plan, mine.actions, overlap.prefetch, ir::parse_bytes(overlap.prefetch_budget).value_or(0));
  receive_ahead_rank(mine.actions, overlap.receive_ahead);
  const ir::RankBlocks blocks = ir::memory_blocks(lanes, only, rank);
  return ir::total(ir::persistent_bytes(lanes, rank)) + arena_of_rank(mine, blocks, overlap.slack).bytes;
}

}  // namespace fem::passes
