#include "ir/lane_waits.hpp"

#include <utility>

#include "ir/lane_conflicts.hpp"

namespace fem::ir {
namespace {

using namespace verifying;

// A batch waits, of each lane, for the latest that it must come after, unless another of its waits implies that one.
// Each wait is needed: its two batches conflict and nothing before it in the program orders them; and since waits point
// backward, nothing after it can.
class Collect {
 public:
  std::vector<Wait> take() { return std::move(waits_); }

  void wait(LaneOrder&, std::size_t) { need_ = {}; }
  void unordered(Lane lane, std::uint32_t number, std::size_t, const ResourceName&, const char*, const char*) {
    need(lane, number);
  }
  void overlap(Lane lane, std::uint32_t number, std::size_t, std::size_t) { need(lane, number); }
  void taken(std::size_t, std::size_t) {}  // no wait helps: the verifier says so

  void end(LaneOrder& order, std::size_t action) {
    for (std::size_t l = 0; l < need_.size(); ++l) {
      if (need_[l] == 0 || implied(order, l)) continue;
      waits_.push_back({static_cast<std::uint32_t>(action), static_cast<Lane>(l), need_[l]});
    }
    for (std::size_t l = 0; l < need_.size(); ++l) {
      if (need_[l] > 0) order.wait(static_cast<Lane>(l), need_[l]);
    }
  }

 private:
  void need(Lane lane, std::uint32_t number) { need_[lane_index(lane)] = std::max(need_[lane_index(lane)], number); }

  bool implied(const LaneOrder& order, std::size_t l) const {
    for (std::size_t other = 0; other < need_.size(); ++other) {
      if (other == l || need_[other] == 0) continue;
      if (order.after(static_cast<Lane>(other), need_[other])[l] >= need_[l]) return true;
    }
    return false;
  }

  LaneCounts need_{};
  std::vector<Wait> waits_;
};

void set_labels(RankProgram& rank) {
  std::array<std::vector<std::uint32_t>, kLanes> batches;  // by lane: first actions
  for (std::size_t i = 0; i < rank.actions.size(); i += batch_size(rank.actions, i)) {
    rank.actions[i].label = 0;
    batches[lane_index(rank.actions[i].lane)].push_back(static_cast<std::uint32_t>(i));
  }
  for (const Wait& wait : rank.waits) rank.actions[batches[lane_index(wait.lane)][wait.count - 1]].label = wait.count;
}

}  // namespace

void set_fewest_waits(Plan& plan, std::size_t program) {
  const Layout layout(plan);
  const UseTable uses = all_uses();
  const Subject subject{plan, layout, program};
  std::vector<RankProgram>& ranks = plan.programs[program].ranks;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].waits.clear();
    const bool placed = !ranks[r].offsets.empty();
    const RankBlocks blocks = placed ? memory_blocks(plan, subject.program(), r) : RankBlocks{};
    Collect found;
    LaneConflicts(subject, r, uses, placed ? &blocks : nullptr, found).run();
    ranks[r].waits = found.take();
    set_labels(ranks[r]);
  }
}

}  // namespace fem::ir
