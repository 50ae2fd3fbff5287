#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "ir/verify_channels.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

// Runs all ranks' programs under rendezvous, each serially in program order, without times: a batch ends when every
// half has met its other side, a collective when all its ranks have reached it. At the stage level, which has no
// messages yet, an action waits for the action of the other rank that produces its operand.
//
// This is enough for the lane level, too. A run of it that ends gives an order in which everything finishes. V24 keeps
// waits backward in the program, so that order also obeys the lanes, each of which keeps its program order; and because
// matching never depends on timing (V21, V22), whatever can finish in one order finishes in all.
class Rendezvous {
 public:
  explicit Rendezvous(const Subject& subject)
      : subject_(subject),
        layout_(subject.layout),
        program_(subject.program()),
        at_stage_level_(subject.plan.level == Level::Stage),
        channels_(subject.layout),
        posted_{std::vector<std::uint32_t>(channels_.size()), std::vector<std::uint32_t>(channels_.size())},
        ranks_(program_.ranks.size()),
        arrived_(kCrossRankGroups.size() * ranks_.size()) {
    if (at_stage_level_) {
      const std::size_t n = layout_.stages() * static_cast<std::size_t>(program_.microbatches);
      forward_done_.resize(n);
      backward_done_.resize(n);
    }
  }

  void run() {
    for (std::size_t r = ranks_.size(); r-- > 0;) wake(r);
    while (!awake_.empty()) {
      const std::size_t r = awake_.back();
      awake_.pop_back();
      ranks_[r].awake = false;
      while (step(r)) {
      }
    }
  }

  bool ended(std::size_t r) const { return ranks_[r].at == program_.ranks[r].actions.size(); }
  std::size_t action_of(std::size_t r) const { return ranks_[r].at; }

  // A rank that this blocked rank waits for.
  std::size_t waits_for(std::size_t r) const {
    for (const Half& half : ranks_[r].halves) {
      if (!met(half)) return half.send ? channels_[half.channel].to : channels_[half.channel].from;
    }
    const std::span<const Action> batch = batch_of(r);
    if (const std::size_t g = group_index(batch.front()); g < kCrossRankGroups.size()) {
      for (const int member : members(g, r)) {
        if (calls(g, static_cast<std::size_t>(member)) < calls(g, r)) return static_cast<std::size_t>(member);
      }
    }
    for (const Action& a : batch) {
      if (const int s = producer(a); s >= 0 && !is_done(a, s)) return static_cast<std::size_t>(layout_.stage(s).pp);
    }
    return r;
  }

 private:
  struct Half {
    std::uint32_t channel, number;  // the number-th message of its side of the channel
    bool send;
  };
  struct RankState {
    std::size_t at = 0;
    bool posted = false, awake = false;
    std::vector<Half> halves;                                 // of the posted batch
    std::array<std::uint32_t, kCrossRankGroups.size()> calls{};  // collectives that it has reached
  };

  std::span<const Action> batch_of(std::size_t r) const {
    const std::span<const Action> actions = program_.ranks[r].actions;
    return actions.subspan(ranks_[r].at, batch_size(actions, ranks_[r].at));
  }

  void wake(std::size_t r) {
    if (ranks_[r].awake) return;
    ranks_[r].awake = true;
    awake_.push_back(r);
  }

  // Runs the rank's next batch; false: it has to wait, or has ended.
  bool step(std::size_t r) {
    if (ended(r)) return false;
    const std::span<const Action> batch = batch_of(r);
    if (!ranks_[r].posted) post(r, batch);
    if (!ready(r, batch)) return false;
    ranks_[r].halves.clear();
    ranks_[r].posted = false;
    ranks_[r].at += batch.size();
    if (at_stage_level_) {
      for (const Action& a : batch) finish(a);
    }
    return true;
  }

  void post(std::size_t r, std::span<const Action> batch) {
    RankState& rank = ranks_[r];
    rank.posted = true;
    for (const Action& a : batch) {
      if (!is_p2p(a.kind)) continue;
      const std::uint32_t c = channels_.of(a);
      rank.halves.push_back({c, posted_[is_send(a.kind)][c]++, is_send(a.kind)});
      wake(static_cast<std::size_t>(a.peer));
    }
    const std::size_t g = group_index(batch.front());
    if (g == kCrossRankGroups.size()) return;
    std::vector<std::uint32_t>& arrived = arrived_[group_of(g, r)];
    const std::uint32_t call = rank.calls[g]++;
    if (arrived.size() <= call) arrived.resize(call + 1);
    if (++arrived[call] < members(g, r).size()) return;
    for (const int member : members(g, r)) wake(static_cast<std::size_t>(member));
  }

  bool met(const Half& half) const { return half.number < posted_[!half.send][half.channel]; }

  bool ready(std::size_t r, std::span<const Action> batch) const {
    for (const Half& half : ranks_[r].halves) {
      if (!met(half)) return false;
    }
    const std::size_t g = group_index(batch.front());
    if (g < kCrossRankGroups.size() && arrived_[group_of(g, r)][calls(g, r) - 1] < members(g, r).size()) return false;
    if (!at_stage_level_) return true;
    for (const Action& a : batch) {
      if (const int s = producer(a); s >= 0 && !is_done(a, s)) return false;
    }
    return true;
  }

  std::uint32_t calls(std::size_t g, std::size_t r) const { return ranks_[r].calls[g]; }
  std::span<const int> members(std::size_t g, std::size_t r) const {
    return layout_.groups().members(kCrossRankGroups[g], static_cast<int>(r));
  }
  std::size_t group_of(std::size_t g, std::size_t r) const {
    return g * ranks_.size() + static_cast<std::size_t>(members(g, r).front());
  }

  static std::size_t group_index(const Action& a) {
    const auto found = std::find(kCrossRankGroups.begin(), kCrossRankGroups.end(), a.group);
    return static_cast<std::size_t>(found - kCrossRankGroups.begin());
  }

  // Stage level: the stage of another rank whose action on the same microbatch must come first, or -1.
  int producer(const Action& a) const {
    if (!at_stage_level_) return -1;
    if (a.kind == ActionKind::Forward && layout_.receives_input(a.stage)) return layout_.stage(a.stage).prev;
    if (is_input_backward(a.kind) && layout_.sends_output(a.stage)) return layout_.stage(a.stage).next;
    return -1;
  }

  std::size_t index(int stage, const Action& a) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(program_.microbatches) +
           static_cast<std::size_t>(a.microbatch);
  }

  bool is_done(const Action& a, int stage) const {
    return (a.kind == ActionKind::Forward ? forward_done_ : backward_done_)[index(stage, a)];
  }

  void finish(const Action& a) {
    const bool forward = a.kind == ActionKind::Forward;
    if (!forward && !is_input_backward(a.kind)) return;
    (forward ? forward_done_ : backward_done_)[index(a.stage, a)] = true;
    const int consumer = forward ? layout_.stage(a.stage).next : layout_.stage(a.stage).prev;
    if (layout_.is_remote(a.stage, consumer)) wake(static_cast<std::size_t>(layout_.stage(consumer).pp));
  }

  const Subject& subject_;
  const Layout& layout_;
  const Program& program_;
  bool at_stage_level_;
  Channels channels_;
  std::array<std::vector<std::uint32_t>, 2> posted_;  // [is a send][channel]
  std::vector<RankState> ranks_;
  std::vector<std::vector<std::uint32_t>> arrived_;  // by group and call: members that have reached it
  std::vector<bool> forward_done_, backward_done_;
  std::vector<std::size_t> awake_;
};

// The circle that the first blocked rank leads into.
std::vector<std::size_t> find_circle(const Rendezvous& world, std::size_t blocked, std::size_t ranks) {
  std::vector<bool> seen(ranks);
  std::size_t r = blocked;
  for (; !seen[r] && !world.ended(r); r = world.waits_for(r)) seen[r] = true;
  std::vector<std::size_t> circle;
  const std::size_t first = r;
  do {
    circle.push_back(r);
    if (world.ended(r)) break;
    r = world.waits_for(r);
  } while (r != first);
  return circle;
}

void report_circle(const Subject& subject, const Rendezvous& world, const std::vector<std::size_t>& circle,
                   Report& report) {
  constexpr std::size_t kMostShown = 16;
  const std::size_t shown = std::min(circle.size(), kMostShown);
  std::string message = "deadlock: rank " + std::to_string(circle[0]);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t r = circle[i];
    message += std::string(i > 0 ? ", which" : "") + " waits in " +
               report.batch_at({subject.index, r, world.action_of(r)}) + " for rank " +
               std::to_string(world.waits_for(r));
  }
  if (shown < circle.size()) {
    message += ", and so on over " + std::to_string(circle.size() - shown) + " more ranks back to rank " +
               std::to_string(circle[0]);
  }
  report.action(Code::V23, {subject.index, circle[0], world.action_of(circle[0])}, std::move(message));
}

}  // namespace

void check_deadlock(const Subject& subject, Report& report) {
  Rendezvous world(subject);
  world.run();
  const std::size_t ranks = subject.program().ranks.size();
  for (std::size_t r = 0; r < ranks; ++r) {
    if (world.ended(r)) continue;
    return report_circle(subject, world, find_circle(world, r, ranks), report);
  }
}

}  // namespace fem::ir::verifying
