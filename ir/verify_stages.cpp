#include <string>
#include <vector>

#include "ir/units.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

std::string numbered(std::string_view what, std::int64_t n) { return std::string(what) + std::to_string(n); }

class StageCheck {
 public:
  StageCheck(const Plan& plan, Report& report) : plan_(plan), stages_(plan.stages), report_(report) {}

  void run() {
    if (stages_.empty()) return report_.plan(Code::V02, "the plan has no stage");
    const int before = report_.errors();
    for (std::size_t s = 0; s < stages_.size(); ++s) links(s);
    ranks();
    if (report_.errors() > before) return;
    chains();
    if (report_.errors() > before) return;
    replicas();
  }

 private:
  bool exists(int s) const { return s >= 0 && static_cast<std::size_t>(s) < stages_.size(); }
  const Stage& at(int s) const { return stages_[static_cast<std::size_t>(s)]; }

  void links(std::size_t s) {
    const Stage& stage = stages_[s];
    const std::int64_t most = static_cast<std::int64_t>(stages_.size()) - 1;
    if (stage.pp < 0 || stage.pp >= plan_.settings.parallel.pp) {
      report_.stage(Code::V03, s, numbered("stage ", static_cast<std::int64_t>(s)) + numbered(": pp = ", stage.pp) +
                                      numbered(" must be between 0 and ", plan_.settings.parallel.pp - 1));
    }
    const auto link = [&](std::string_view key, int target, std::int16_t Stage::*back, std::string_view back_key) {
      if (target == -1) return;
      const std::string text = numbered("stage ", static_cast<std::int64_t>(s)) + ": " + std::string(key) +
                               numbered(" = ", target);
      if (!exists(target)) {
        report_.stage(Code::V03, s, text + numbered(" must be -1 or between 0 and ", most));
      } else if (at(target).*back != static_cast<std::int64_t>(s)) {
        report_.stage(Code::V03, s, text + numbered(", but stage ", target) + " has " + std::string(back_key) +
                                        numbered(" = ", at(target).*back));
      }
    };
    link("next", stage.next, &Stage::prev, "prev");
    link("prev", stage.prev, &Stage::next, "next");
    if (stage.replica_of != -1 && (!exists(stage.replica_of) || static_cast<std::size_t>(stage.replica_of) == s)) {
      report_.stage(Code::V03, s, numbered("stage ", static_cast<std::int64_t>(s)) +
                                      numbered(": replica_of = ", stage.replica_of) +
                                      numbered(" must be another stage between 0 and ", most));
    }
  }

  void ranks() {
    std::vector<bool> busy(static_cast<std::size_t>(plan_.settings.parallel.pp));
    for (const Stage& stage : stages_) {
      if (stage.pp >= 0 && stage.pp < plan_.settings.parallel.pp) busy[static_cast<std::size_t>(stage.pp)] = true;
    }
    for (std::size_t r = 0; r < busy.size(); ++r) {
      if (!busy[r]) report_.plan(Code::V03, "pipeline rank " + std::to_string(r) + " runs no stage; parallel.pp = " +
                                              std::to_string(busy.size()) + " ranks need one each");
    }
  }

  // Links agree, so following `next` from a stage without `prev` ends, and what no chain reaches lies on a circle.
  void chains() {
    std::vector<bool> seen(stages_.size());
    std::size_t chains = 0;
    for (std::size_t first = 0; first < stages_.size(); ++first) {
      if (stages_[first].prev != -1) continue;
      chain(static_cast<int>(first), seen);
      if (++chains > 2) report_.stage(Code::V02, first, "a third chain of stages; there are at most two directions");
    }
    for (std::size_t s = 0; s < seen.size(); ++s) {
      if (seen[s]) continue;
      return report_.stage(Code::V02, s, numbered("stage ", static_cast<std::int64_t>(s)) +
                                             " lies on a circle of stages that no first stage reaches");
    }
  }

  void chain(int first, std::vector<bool>& seen) {
    const std::int64_t units = unit_count(plan_.settings);
    const auto& division = plan_.settings.parallel.layers_per_stage;
    std::int64_t unit = 0;
    std::size_t position = 0;
    int last = first;
    for (int s = first; s >= 0; s = at(s).next, ++position) {
      const Stage& stage = at(s);
      const auto where = static_cast<std::size_t>(s);
      seen[where] = true;
      last = s;
      const std::string name = numbered("stage ", s);
      if (stage.first_unit != unit || stage.units < 1) {
        report_.stage(Code::V02, where, name + numbered(" must begin with unit ", unit) +
                                            " and hold at least one unit, but has units=" +
                                            std::to_string(stage.first_unit) + ".." +
                                            std::to_string(stage.first_unit + stage.units - 1));
      }
      unit = stage.first_unit + stage.units;
      const std::int64_t blocks = stage.units - (stage.prev == -1) - (stage.next == -1);
      if (!division.empty() && position < division.size() && division[position] != blocks) {
        report_.stage(Code::V02, where, name + " holds " + std::to_string(blocks) +
                                            " blocks, but parallel.layers_per_stage says " +
                                            std::to_string(division[position]));
      }
    }
    if (unit != units) {
      report_.stage(Code::V02, static_cast<std::size_t>(last),
                    numbered("the last stage must end with unit ", units - 1) + numbered(", but ends with ", unit - 1));
    }
    if (!division.empty() && position != division.size()) {
      report_.settings(Code::V02, "parallel", "parallel.layers_per_stage has " + std::to_string(division.size()) +
                                                  " values for " + std::to_string(position) + " stages");
    }
  }

  // The second direction holds the same stages as the first, each named by its replica.
  void replicas() {
    const Layout layout(plan_);
    std::vector<std::size_t> length(layout.chains());
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::size_t chain = layout.chain(static_cast<int>(s));
      ++length[chain];
      const int original = stages_[s].replica_of;
      const bool is_replica = original != -1;
      const std::string name = numbered("stage ", static_cast<std::int64_t>(s));
      if (is_replica != (chain == 1)) {
        report_.stage(Code::V02, s, name + (is_replica ? " of the first direction is a replica: remove its replica_of"
                                                       : " of the second direction must name with replica_of the stage "
                                                         "whose parameters it shares"));
      } else if (is_replica && (layout.chain(original) != 0 || at(original).units != stages_[s].units ||
                                at(original).first_unit != stages_[s].first_unit)) {
        report_.stage(Code::V02, s, name + numbered(" is replica_of ", original) +
                                        ", which is not a stage of the first direction with the same units");
      }
    }
    if (length.size() == 2 && length[0] != length[1]) report_.plan(Code::V02, "the two directions differ in stages");
    for (std::size_t r = 0; r < static_cast<std::size_t>(plan_.settings.parallel.pp); ++r) partner(layout, r);
  }

  void partner(const Layout& layout, std::size_t rank) {
    const int first = layout.stages_of(rank).front();
    const int with = layout.groups().other_replica(first);
    for (const int s : layout.stages_of(rank)) {
      const int other = layout.groups().other_replica(s);
      if (with < 0 || other < 0 || at(other).pp == at(with).pp) continue;
      report_.stage(Code::V03, static_cast<std::size_t>(s),
                    "rank " + std::to_string(rank) + " holds stages " + std::to_string(first) + " and " +
                        std::to_string(s) + ", whose replicas lie on ranks " + std::to_string(at(with).pp) + " and " +
                        std::to_string(at(other).pp) + ": both must lie on one rank");
      return;
    }
  }

  const Plan& plan_;
  const std::vector<Stage>& stages_;
  Report& report_;
};

}  // namespace

void check_stages(const Plan& plan, Report& report) { StageCheck(plan, report).run(); }

}  // namespace fem::ir::verifying
