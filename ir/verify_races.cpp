#include <array>
#include <string>
#include <vector>

#include "ir/lane_conflicts.hpp"

namespace fem::ir::verifying {
namespace {

// The lanes of one rank run at the same time; only a lane's own order and the waits order two actions. Of each other
// lane, the latest batch that the current one should have waited for is reported.
class Races {
 public:
  Races(const Subject& subject, std::size_t rank, const RankBlocks& blocks, Report& report)
      : program_(subject.program().ranks[rank]), place_{subject.index, rank, 0}, all_(blocks), report_(report) {}

  void wait(LaneOrder& order, std::size_t action) {
    place_.action = action;
    batches_[lane_index(order.lane())].push_back(action);
    for (; wait_ < program_.waits.size() && program_.waits[wait_].action == action; ++wait_) {
      order.wait(program_.waits[wait_].lane, program_.waits[wait_].count);
    }
  }

  void unordered(Lane lane, std::uint32_t number, std::size_t action, const ResourceName& what, const char* verb,
                 const char* may) {
    if (number <= races_[lane_index(lane)].number) return;
    races_[lane_index(lane)] = {number, action, Code::V25,
                                verb + text(what) + ", which " + other(lane, number) + " " + may + cure(lane, number)};
  }

  void overlap(Lane lane, std::uint32_t number, std::size_t block, std::size_t earlier) {
    if (number <= races_[lane_index(lane)].number) return;
    races_[lane_index(lane)] = {number, place_.action, Code::V29,
                                "puts " + block_text(block) + " over " + block_text(earlier) + ", which " +
                                    other(lane, number) + " may still use" + cure(lane, number)};
  }

  void taken(std::size_t block, std::size_t earlier) {
    const std::size_t last = all_.action[all_.blocks[earlier].death];
    report_.action(Code::V29, place_,
                   "puts " + block_text(block) + " over " + block_text(earlier) + ", which is used until " +
                       report_.batch_at({place_.program, place_.rank, last}));
  }

  void end(LaneOrder& order, std::size_t) {
    for (std::size_t l = 0; l < races_.size(); ++l) {
      Race& race = races_[l];
      if (race.number == 0) continue;
      report_.action(race.code, {place_.program, place_.rank, race.action}, std::move(race.message));
      order.wait(static_cast<Lane>(l), race.number);  // as if it had waited: one error for one cause
      race = {};
    }
  }

 private:
  struct Race {
    std::uint32_t number = 0;
    std::size_t action = 0;
    Code code = Code::V25;
    std::string message;
  };

  std::string other(Lane lane, std::uint32_t number) const {
    const Place first{place_.program, place_.rank, batches_[lane_index(lane)][number - 1]};
    return report_.batch_at(first) + " on lane " + std::string(name(lane));
  }
  static std::string cure(Lane lane, std::uint32_t number) {
    const std::string n = std::to_string(number);
    return "; 'wait " + std::string(name(lane)) + ">=" + n + "' here and the label @" + n + " there order the two";
  }
  // "saved u3 m2 (bytes 0 to 4095)"
  std::string block_text(std::size_t b) const {
    const MemoryBlock& block = all_.blocks[b];
    const std::int64_t begin = program_.offsets[b].offset;
    return std::string(name(block.kind)) + " u" + std::to_string(block.unit) +
           (block.microbatch < 0 ? "" : " m" + std::to_string(block.microbatch)) + " (bytes " + std::to_string(begin) +
           " to " + std::to_string(begin + block.bytes - 1) + ")";
  }

  const RankProgram& program_;
  Place place_;  // the current batch
  const RankBlocks& all_;
  Report& report_;
  std::size_t wait_ = 0;
  std::array<std::vector<std::size_t>, kLanes> batches_;  // so far: first actions
  std::array<Race, kLanes> races_;                        // of the current batch, by the other lane
};

// Each block has its offset, at the batch that begins it and inside the arena.
bool check_offsets(const Subject& subject, std::size_t rank, const RankBlocks& all, Report& report) {
  const RankProgram& program = subject.program().ranks[rank];
  const std::vector<MemoryBlock>& blocks = all.blocks;
  const auto fail = [&](std::size_t action, std::string message) {
    report.action(Code::V29, {subject.index, rank, action}, std::move(message));
    return false;
  };
  const auto number_at = [&](std::size_t action) {
    return std::to_string(std::ranges::count_if(
        blocks, [&](const MemoryBlock& b) { return all.birth_action(b) == action; }));
  };
  for (std::size_t b = 0; b < std::max(blocks.size(), program.offsets.size()); ++b) {
    const std::size_t begins = b < blocks.size() ? all.birth_action(blocks[b]) : SIZE_MAX;
    const std::size_t given = b < program.offsets.size() ? program.offsets[b].action : SIZE_MAX;
    if (begins != given) {
      const std::size_t action = std::min(begins, given);
      return fail(action, "begins " + number_at(action) + " blocks, and each has one offset after 'at'");
    }
    const std::int64_t offset = program.offsets[b].offset;
    if (offset % kBufferAlignment != 0)
      return fail(given, "offset " + std::to_string(offset) + " is not a multiple of " +
                             std::to_string(kBufferAlignment));
    if (offset > program.arena - blocks[b].bytes)
      return fail(given, "a block of " + std::to_string(blocks[b].bytes) + " bytes at " + std::to_string(offset) +
                             " ends outside the arena of " + std::to_string(program.arena) + " bytes");
  }
  return true;
}

}  // namespace

void check_races(const Subject& subject, Report& report) {
  if (subject.plan.level < Level::Lane) return;
  const UseTable uses = all_uses();
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) {
    const RankProgram& program = subject.program().ranks[r];
    const bool planned = program.arena > 0;
    const RankBlocks blocks = planned ? memory_blocks(subject.plan, subject.program(), r) : RankBlocks{};
    const bool placed = planned && check_offsets(subject, r, blocks, report);
    Races races(subject, r, blocks, report);
    LaneConflicts(subject, r, uses, placed ? &blocks : nullptr, races).run();
  }
}

}  // namespace fem::ir::verifying
