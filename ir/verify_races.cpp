#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "ir/verify_resources.hpp"

namespace fem::ir::verifying {
namespace {

// The lanes of one rank run at the same time; only a lane's own order and the waits order two actions. Each batch has a
// vector clock: of every lane, how many batches have finished before it starts. Two uses of a resource of which one
// changes it must be ordered: the later one's clock counts the earlier one. What other ranks do is not used as an
// order: a message that comes back proves nothing about the buffer that it left from.
class RankRaces {
 public:
  RankRaces(const Subject& subject, std::size_t rank, const UseTable& uses, Report& report)
      : program_(subject.program().ranks[rank]),
        place_{subject.index, rank, 0},
        resources_(subject, rank),
        uses_(uses),
        report_(report),
        last_(resources_.size()) {}

  void run() {
    const std::span<const Action> actions = program_.actions;
    std::size_t wait = 0;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t n = batch_size(actions, i);
      begin(i, actions[i].lane);
      for (; wait < program_.waits.size() && program_.waits[wait].action == i; ++wait) {
        learn(program_.waits[wait].lane, program_.waits[wait].count);
      }
      for (std::size_t k = i; k < i + n; ++k) check(actions[k], k);
      for (std::size_t k = i; k < i + n; ++k) remember(actions[k]);
      report_races();
      lane(lane_).push_back({i, clock_});
      i += n;
    }
  }

 private:
  using Clock = std::array<std::uint32_t, kLanes>;
  struct Batch {
    std::size_t action;
    Clock clock;  // when it starts
  };
  // Number of the batch in its lane, 0: none.
  struct Last {
    std::uint32_t change = 0;
    Lane change_lane = Lane::Compute;
    std::array<std::uint32_t, kLanes> read{};  // since the last change
  };
  // The latest batch of a lane that the current batch should have waited for.
  struct Race {
    std::uint32_t number = 0;
    std::size_t action = 0;
    std::string message;
  };

  static std::size_t index(Lane l) { return static_cast<std::size_t>(l); }
  std::vector<Batch>& lane(Lane l) { return lanes_[index(l)]; }

  void begin(std::size_t action, Lane l) {
    lane_ = l;
    number_ = static_cast<std::uint32_t>(lane(l).size() + 1);
    clock_ = number_ > 1 ? lane(l).back().clock : Clock{};
    clock_[index(l)] = number_ - 1;
    place_.action = action;
  }

  // The n-th batch of that lane has finished, and what it waited for.
  void learn(Lane l, std::uint32_t n) {
    const Clock& known = lane(l)[n - 1].clock;
    for (std::size_t k = 0; k < clock_.size(); ++k) clock_[k] = std::max(clock_[k], known[k]);
    clock_[index(l)] = std::max(clock_[index(l)], n);
  }

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

  void need(Lane other, std::uint32_t number, std::size_t i, const ResourceName& what, const char* verb,
            const char* may) {
    if (other == lane_ || number <= clock_[index(other)] || number <= races_[index(other)].number) return;
    const Place first{place_.program, place_.rank, lane(other)[number - 1].action};
    const std::string n = std::to_string(number), l(name(other));
    races_[index(other)] = {number, i,
                            verb + text(what) + ", which " + report_.batch_at(first) +
                                " on lane " + l + " " + may + "; 'wait " + l + ">=" + n + "' here and the label @" + n +
                                " there order the two"};
  }

  void remember(const Action& a) {
    const Uses& uses = uses_[static_cast<std::size_t>(a.kind)];
    for (const ResourceKind kind : uses.reads) {
      resources_.each(a, kind, [&](std::int64_t r, const ResourceName&) {
        last_[static_cast<std::size_t>(r)].read[index(lane_)] = number_;
      });
    }
    for (const ResourceKind kind : uses.changes) {
      resources_.each(a, kind, [&](std::int64_t r, const ResourceName&) {
        last_[static_cast<std::size_t>(r)] = {number_, lane_, {}};
      });
    }
  }

  void report_races() {
    for (std::size_t l = 0; l < races_.size(); ++l) {
      Race& race = races_[l];
      if (race.number == 0) continue;
      report_.action(Code::V25, {place_.program, place_.rank, race.action}, std::move(race.message));
      learn(static_cast<Lane>(l), race.number);  // as if it had waited: one error for one cause
      race = {};
    }
  }

  const RankProgram& program_;
  Place place_;  // the current batch
  RankResources resources_;
  const UseTable& uses_;
  Report& report_;
  std::vector<Last> last_;                            // by resource
  std::array<std::vector<Batch>, kLanes> lanes_;      // batches so far
  std::array<Race, kLanes> races_;                    // of the current batch, by the other lane
  Clock clock_{};
  Lane lane_ = Lane::Compute;
  std::uint32_t number_ = 0;
};

}  // namespace

void check_races(const Subject& subject, Report& report) {
  if (subject.plan.level < Level::Lane) return;
  const UseTable uses = all_uses();
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) RankRaces(subject, r, uses, report).run();
}

}  // namespace fem::ir::verifying
