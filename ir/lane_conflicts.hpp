// Walks over one rank's lane program and finds what must be ordered and is not: uses of one resource, and blocks that
// take each other's bytes of the arena. Used by the verifier and by fewest_waits; presumes V05 and V06.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "ir/lane_order.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/verify_resources.hpp"

namespace fem::ir::verifying {

// Two uses of a resource of which one changes it must be ordered: the later one's clock counts the earlier one. What
// other ranks do is not used as an order: a message that comes back proves nothing about the buffer that it left from.
//
// Found has
//   void wait(LaneOrder&, size_t action)     at the beginning of a batch: applies the waits that are there
//   void unordered(Lane, uint32_t number, size_t action, const ResourceName&, const char* verb, const char* may)
//   void overlap(Lane, uint32_t number, size_t block, size_t earlier)  `earlier` is used by that batch of the lane
//   void taken(size_t block, size_t earlier)  both are alive: no order could help
//   void end(LaneOrder&, size_t action)      what was found for this batch is complete
template <class Found>
class LaneConflicts {
 public:
  // `blocks`: the rank's, for each of which the program has an offset; nullptr where those are not looked at.
  LaneConflicts(const Subject& subject, std::size_t rank, const UseTable& uses, const RankBlocks* blocks, Found& found)
      : program_(subject.program().ranks[rank]),
        resources_(subject, rank),
        uses_(uses),
        all_(blocks),
        found_(found),
        last_(resources_.size()) {}

  void run() {
    const std::span<const Action> actions = program_.actions;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t n = batch_size(actions, i);
      order_.begin(actions[i].lane);
      found_.wait(order_, i);
      for (std::size_t k = i; k < i + n; ++k) check(actions[k], k);
      for (std::size_t k = i; k < i + n; ++k) remember(actions[k]);
      if (all_) place(i);
      found_.end(order_, i);
      order_.end();
      i += n;
    }
  }

 private:
  // Numbers of batches in their lane, 0: none.
  struct Last {
    std::uint32_t change = 0;
    Lane change_lane = Lane::Compute;
    LaneCounts read{};  // since the last change
  };
  struct Owner {
    std::int64_t end;
    std::uint32_t block;
  };

  void check(const Action& a, std::size_t i) {
    const Uses& uses = uses_[static_cast<std::size_t>(a.kind)];
    for (const ResourceKind kind : uses.reads) {
      resources_.each(a, kind, [&](std::int64_t r, const ResourceName& name) { after_change(i, r, name, "reads "); });
    }
    for (const ResourceKind kind : uses.changes) {
      resources_.each(a, kind, [&](std::int64_t r, const ResourceName& name) {
        const char* verb = info(a.kind).writes.has(kind) ? "writes " : "frees ";
        after_change(i, r, name, verb);
        const Last& last = last_[static_cast<std::size_t>(r)];
        for (std::size_t l = 0; l < last.read.size(); ++l) {
          need(static_cast<Lane>(l), last.read[l], i, name, verb, "may still read");
        }
      });
    }
  }

  void after_change(std::size_t i, std::int64_t r, const ResourceName& name, const char* verb) {
    const Last& last = last_[static_cast<std::size_t>(r)];
    need(last.change_lane, last.change, i, name, verb, "may still be changing");
  }

  void need(Lane other, std::uint32_t number, std::size_t i, const ResourceName& name, const char* verb,
            const char* may) {
    if (other == order_.lane() || number <= order_.before()[lane_index(other)]) return;
    found_.unordered(other, number, i, name, verb, may);
  }

  void remember(const Action& a) {
    const Uses& uses = uses_[static_cast<std::size_t>(a.kind)];
    for (const ResourceKind kind : uses.reads) {
      resources_.each(a, kind, [&](std::int64_t r, const ResourceName&) {
        last_[static_cast<std::size_t>(r)].read[lane_index(order_.lane())] = order_.number();
      });
    }
    for (const ResourceKind kind : uses.changes) {
      resources_.each(a, kind, [&](std::int64_t r, const ResourceName&) {
        last_[static_cast<std::size_t>(r)] = {order_.number(), order_.lane(), {}};
      });
    }
  }

  // The blocks that the batch begins take their bytes from the blocks that had them last.
  void place(std::size_t batch) {
    const std::vector<MemoryBlock>& blocks = all_->blocks;
    for (; next_ < blocks.size() && all_->birth_action(blocks[next_]) == batch; ++next_) {
      const std::int64_t begin = program_.offsets[next_].offset, end = begin + blocks[next_].bytes;
      auto at = owners_.upper_bound(begin);
      if (at != owners_.begin() && std::prev(at)->second.end > begin) --at;
      while (at != owners_.end() && at->first < end) {
        const auto [from, owner] = *at;
        inherit(owner.block);
        at = owners_.erase(at);
        if (from < begin) owners_[from] = {begin, owner.block};
        if (owner.end > end) at = owners_.insert_or_assign(end, Owner{owner.end, owner.block}).first;
      }
      owners_[begin] = {end, static_cast<std::uint32_t>(next_)};
    }
  }

  void inherit(std::uint32_t earlier) {
    const MemoryBlock& old = all_->blocks[earlier];
    if (old.death >= all_->blocks[next_].birth) return found_.taken(next_, earlier);
    for (std::size_t l = 0; l < old.uses.size(); ++l) {
      if (l == lane_index(order_.lane()) || old.uses[l] <= order_.before()[l]) continue;
      found_.overlap(static_cast<Lane>(l), old.uses[l], next_, earlier);
    }
  }

  const RankProgram& program_;
  RankResources resources_;
  const UseTable& uses_;
  const RankBlocks* all_;
  Found& found_;
  std::vector<Last> last_;  // by resource
  std::map<std::int64_t, Owner> owners_;  // by first byte: the last block that had these bytes
  std::size_t next_ = 0;    // block
  LaneOrder order_;
};

}  // namespace fem::ir::verifying
