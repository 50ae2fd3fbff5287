// One allocation for a rank: every block gets an offset, and takes bytes only from blocks that the waits put before it.
#include <algorithm>
#include <vector>

#include "ir/lane_waits.hpp"
#include "ir/memory_blocks.hpp"
#include "passes/overlap_rank.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

// Lifetimes in program order, stretched where lanes meet: bytes that another lane frees are taken again, and bytes that
// a receive or a reload takes were freed, `slack` computations of units apart. Else the later lane would wait for the
// earlier one right away and run behind it rather than beside it. Gathered parameters and moments from host memory are
// as far apart as the pass prefetch puts them.
class Lifetimes {
 public:
  Lifetimes(const ir::RankProgram& rank, const ir::RankBlocks& blocks, std::int64_t slack)
      : rank_(rank), blocks_(blocks), slack_(static_cast<std::size_t>(slack)) {
    compute_before_.reserve(blocks.action.size());
    for (std::uint32_t t = 0; t < blocks.action.size(); ++t) {
      compute_before_.push_back(static_cast<std::uint32_t>(compute_.size()));
      if (ir::is_computation(rank.actions[blocks.action[t]].kind)) compute_.push_back(t);
    }
  }

  ArenaInterval of(const ir::MemoryBlock& block) const {
    ArenaInterval life{block.birth, block.death, ir::aligned(block.bytes)};
    if (block.kind == ir::MemoryKind::Parameters || block.kind == ir::MemoryKind::Optimizer) return life;
    if (lane(block.birth) != ir::Lane::Compute) life.birth = earlier(block.birth);
    if (lane(block.death) != ir::Lane::Compute) life.death = later(block.death);
    return life;
  }

 private:
  ir::Lane lane(std::uint32_t tick) const { return rank_.actions[blocks_.action[tick]].lane; }
  std::uint32_t earlier(std::uint32_t tick) const {
    const std::size_t before = compute_before_[tick];
    return slack_ == 0 ? tick : before <= slack_ ? 0 : compute_[before - slack_];
  }
  std::uint32_t later(std::uint32_t tick) const {
    const std::size_t last = compute_before_[tick] + slack_;
    if (slack_ == 0 || compute_.empty()) return tick;
    return std::max(tick, compute_[std::min(last, compute_.size()) - 1]);
  }

  const ir::RankProgram& rank_;
  const ir::RankBlocks& blocks_;
  std::size_t slack_;
  std::vector<std::uint32_t> compute_;         // ticks of computations: what else is on lane compute takes no time
  std::vector<std::uint32_t> compute_before_;  // by tick: computations before it
};

}  // namespace

ArenaLayout arena_of_rank(const ir::RankProgram& rank, const ir::RankBlocks& blocks, std::int64_t slack) {
  const Lifetimes lifetimes(rank, blocks, slack);
  std::vector<ArenaInterval> intervals;
  intervals.reserve(blocks.blocks.size());
  for (const ir::MemoryBlock& block : blocks.blocks) intervals.push_back(lifetimes.of(block));
  return lay_out(intervals);
}

bool run_arena(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink&) {
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    ir::Program& program = plan.programs[p];
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      ir::RankProgram& rank = program.ranks[r];
      const ir::RankBlocks blocks = ir::memory_blocks(plan, program, r);
      const ArenaLayout layout = arena_of_rank(rank, blocks, options.integer("slack"));
      rank.arena = layout.bytes;
      rank.offsets.clear();
      rank.offsets.reserve(blocks.blocks.size());
      for (std::size_t b = 0; b < blocks.blocks.size(); ++b)
        rank.offsets.push_back({blocks.birth_action(blocks.blocks[b]), layout.offsets[b]});
    }
    ir::set_fewest_waits(plan, p);
  }
  return true;
}

}  // namespace fem::passes
