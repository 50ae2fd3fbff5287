#include <array>
#include <string>
#include <vector>

#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

// The batches of one rank, counted by lane as waits count them.
class LaneCheck {
 public:
  LaneCheck(const Subject& subject, std::size_t rank, Report& report)
      : rank_program_(subject.program().ranks[rank]), program_(subject.index), rank_(rank), report_(report) {
    const std::span<const Action> actions = rank_program_.actions;
    for (std::size_t i = 0; i < actions.size(); i += batch_size(actions, i)) lane(actions[i].lane).push_back(i);
    for (std::size_t l = 0; l < lanes_.size(); ++l) awaited_[l].resize(lanes_[l].size());
  }

  void run() {
    std::size_t before = 0;
    for (std::size_t w = 0; w < rank_program_.waits.size(); ++w) {
      const Wait& wait = rank_program_.waits[w];
      if (wait.action >= rank_program_.actions.size() || wait.action < before || !begins_batch(wait.action)) {
        return report_.rank(Code::V24, program_, rank_,
                            "waits must be sorted and belong to an action or the first half of a batch, but wait " +
                                std::to_string(w) + " names action " + std::to_string(wait.action));
      }
      before = wait.action;
      check(wait, w);
    }
    labels();
  }

 private:
  Place place(std::size_t action) const { return {program_, rank_, action}; }
  std::vector<std::size_t>& lane(Lane l) { return lanes_[static_cast<std::size_t>(l)]; }

  bool begins_batch(std::size_t action) const { return action == 0 || !rank_program_.actions[action - 1].joined(); }

  void check(const Wait& wait, std::size_t w) {
    const std::string text = "wait " + std::string(name(wait.lane)) + ">=" + std::to_string(wait.count);
    if (rank_program_.actions[wait.action].lane == wait.lane) {
      return report_.action(Code::V24, place(wait.action),
                            text + " names the action's own lane, which keeps its order: no wait is needed");
    }
    for (std::size_t other = w; other-- > 0 && rank_program_.waits[other].action == wait.action;) {
      if (rank_program_.waits[other].lane != wait.lane) continue;
      return report_.action(Code::V24, place(wait.action), text + ": a second wait for this lane; keep the larger one");
    }
    const std::vector<std::size_t>& list = lane(wait.lane);
    if (wait.count < 1 || wait.count > list.size()) {
      return report_.action(Code::V24, place(wait.action), text + ": the lane has " + std::to_string(list.size()) +
                                                               " actions on this rank");
    }
    const std::size_t target = list[wait.count - 1];
    if (target > wait.action) {
      return report_.action(Code::V24, place(wait.action), text + " means " + report_.batch_at(place(target)) +
                                                               ", which stands later in the program");
    }
    awaited_[static_cast<std::size_t>(wait.lane)][wait.count - 1] = true;
    if (rank_program_.actions[target].label != wait.count) {
      report_.action(Code::V24, place(target), "is awaited by " + report_.batch_at(place(wait.action)) +
                                                   " and must carry the label @" + std::to_string(wait.count));
    }
  }

  void labels() {
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      for (std::size_t n = 0; n < lanes_[l].size(); ++n) {
        const std::uint32_t label = rank_program_.actions[lanes_[l][n]].label;
        if (label == 0 || awaited_[l][n]) continue;
        report_.action(Code::V24, place(lanes_[l][n]), "carries the label @" + std::to_string(label) +
                                                           ", but no action waits for it: remove the label");
      }
    }
  }

  const RankProgram& rank_program_;
  std::size_t program_, rank_;
  Report& report_;
  std::array<std::vector<std::size_t>, kLanes> lanes_;  // first action of each batch
  std::array<std::vector<bool>, kLanes> awaited_;       // by batch of the lane
};

void check_no_waits(const Subject& subject, std::size_t rank, Report& report) {
  const RankProgram& program = subject.program().ranks[rank];
  if (program.arena > 0 || !program.offsets.empty())
    report.rank(Code::V10, subject.index, rank, "an arena stands at level lane only");
  if (program.waits.empty()) return;
  const std::size_t action = program.waits.front().action;
  const std::string message = "waits stand at level lane only";
  if (action >= program.actions.size()) return report.rank(Code::V10, subject.index, rank, message);
  report.action(Code::V10, {subject.index, rank, action}, message);
}

// Messages and collectives between pipeline ranks are matched by order, so each kind keeps to one lane.
void check_home_lanes(const Subject& subject, std::size_t rank, Report& report) {
  const std::vector<Action>& actions = subject.program().ranks[rank].actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Lane home = info(actions[i].kind).lane;
    if (actions[i].lane == home || (home != Lane::P2p && home != Lane::Collective)) continue;
    report.action(Code::V24, {subject.index, rank, i},
                  std::string(name(actions[i].kind)) + " must stay on lane " + std::string(name(home)) +
                      ": the other side is matched by that lane's order");
  }
}

}  // namespace

void check_lanes(const Subject& subject, Report& report) {
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) {
    if (subject.plan.level < Level::Lane) {
      check_no_waits(subject, r, report);
    } else {
      const RankProgram& program = subject.program().ranks[r];
      if (program.arena == 0 && !program.offsets.empty())
        report.rank(Code::V10, subject.index, r, "offsets without an arena: the rank's line must be 'rank " +
                                                     std::to_string(r) + " arena=BYTES'");
      check_home_lanes(subject, r, report);
      LaneCheck(subject, r, report).run();
    }
  }
}

}  // namespace fem::ir::verifying
