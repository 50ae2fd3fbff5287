#include "passes/communication.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/text.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

constexpr std::uint32_t kNowhere = 0xffffffffu;
constexpr int kMaxBatch = 4;

struct RankState {
  std::vector<Action> items;        // the rank's actions with every half at its first place
  std::vector<std::uint8_t> taken;  // by item: a receive that has been moved forward
  std::size_t at = 0;               // the item that runs next or blocks
  bool blocked = false;
  std::array<Action, kMaxBatch - 1> joined;  // receives that share the blocked send's batch; all have arrived
  int joined_count = 0;
  std::vector<Action> out;
};

class Lowering {
 public:
  Lowering(std::span<const ir::Stage> stages, ir::Program& program, ir::DiagnosticSink& sink)
      : stages_(stages),
        program_(program),
        sink_(sink),
        ranks_(program.ranks.size()),
        receive_at_(2 * stages.size() * static_cast<std::size_t>(program.microbatches), kNowhere) {}

  bool run() {
    for (const ir::Stage& stage : stages_)
      if (!has_rank(stage.pp) || !has_stage(stage.prev) || !has_stage(stage.next))
        return fail("a stage names a rank or a stage that does not exist");
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!insert(static_cast<int>(r))) return false;
      runnable_.push_back(static_cast<int>(r));
    }
    do {
      while (!runnable_.empty()) {
        const int r = runnable_.back();
        runnable_.pop_back();
        advance(r);
      }
      if (!resolve_circles()) return false;
    } while (!runnable_.empty());
    for (std::size_t r = 0; r < ranks_.size(); ++r) program_.ranks[r].actions = std::move(ranks_[r].out);
    return true;
  }

 private:
  bool fail(std::string message) {
    sink_.error({}, "program " + program_.name + ": " + std::move(message));
    return false;
  }

  bool has_rank(int r) const { return r >= 0 && static_cast<std::size_t>(r) < ranks_.size(); }
  bool has_stage(int s) const { return s >= -1 && s < static_cast<int>(stages_.size()); }

  std::size_t slot(const Action& receive) const {
    const std::size_t direction = receive.kind == ActionKind::RecvBackward;
    return (direction * stages_.size() + static_cast<std::size_t>(receive.stage)) *
               static_cast<std::size_t>(program_.microbatches) +
           static_cast<std::size_t>(receive.microbatch);
  }

  bool insert(int r);
  bool insert_around(int r, std::span<const Action> actions);
  bool half(ActionKind kind, const Action& near, int other_stage, int r, Action& result) const;
  void advance(int r);
  void complete(RankState& rank);
  bool resolve_circles();
  bool resolve(std::span<const int> circle);
  bool take(int r, int sender);
  bool report_circle(std::span<const int> circle);
  bool report_endless();

  std::span<const ir::Stage> stages_;
  ir::Program& program_;
  ir::DiagnosticSink& sink_;
  std::vector<RankState> ranks_;
  std::vector<std::uint32_t> receive_at_;  // by slot(): index of the receive among its rank's items
  std::vector<int> runnable_;
};

bool is_forward(ActionKind kind) { return kind == ActionKind::Forward; }
bool is_backward(ActionKind kind) { return kind == ActionKind::Backward || kind == ActionKind::BackwardInput; }

// The half of that kind next to a forward or backward; false where the other stage is absent or on the same rank.
bool Lowering::half(ActionKind kind, const Action& near, int other_stage, int r, Action& result) const {
  if (other_stage < 0 || stages_[static_cast<std::size_t>(other_stage)].pp == r) return false;
  result = Action{};
  result.kind = kind;
  result.lane = ir::info(kind).lane;
  result.stage = near.stage;
  result.microbatch = near.microbatch;
  result.peer = stages_[static_cast<std::size_t>(other_stage)].pp;
  return true;
}

bool Lowering::insert(int r) {
  const std::vector<Action>& actions = program_.ranks[static_cast<std::size_t>(r)].actions;
  RankState& rank = ranks_[static_cast<std::size_t>(r)];
  rank.items.reserve(3 * actions.size());
  for (std::size_t i = 0, n; i < actions.size(); i += n) {
    n = ir::batch_size(actions, i);
    if (!insert_around(r, std::span(actions).subspan(i, n))) return false;
  }
  rank.taken.assign(rank.items.size(), 0);
  rank.out.reserve(rank.items.size());
  return true;
}

// One action or overlapped pair with the receives of its members before it and their sends after it.
bool Lowering::insert_around(int r, std::span<const Action> actions) {
  std::vector<Action>& items = ranks_[static_cast<std::size_t>(r)].items;
  Action crossing;
  for (const Action& a : actions) {
    if (!is_forward(a.kind) && !is_backward(a.kind)) continue;
    if (a.stage < 0 || static_cast<std::size_t>(a.stage) >= stages_.size() || a.microbatch < 0 ||
        a.microbatch >= program_.microbatches)
      return fail("rank " + std::to_string(r) + ": " + ir::action_text({&a, 1}) + " names no stage and microbatch");
    const ir::Stage& stage = stages_[static_cast<std::size_t>(a.stage)];
    const bool found = is_forward(a.kind) ? half(ActionKind::RecvForward, a, stage.prev, r, crossing)
                                          : half(ActionKind::RecvBackward, a, stage.next, r, crossing);
    if (!found) continue;
    receive_at_[slot(crossing)] = static_cast<std::uint32_t>(items.size());
    items.push_back(crossing);
  }
  items.insert(items.end(), actions.begin(), actions.end());
  for (const Action& a : actions) {
    if (!is_forward(a.kind) && !is_backward(a.kind)) continue;
    const ir::Stage& stage = stages_[static_cast<std::size_t>(a.stage)];
    const bool found = is_forward(a.kind) ? half(ActionKind::SendForward, a, stage.next, r, crossing)
                                          : half(ActionKind::SendBackward, a, stage.prev, r, crossing);
    if (found) items.push_back(crossing);
  }
  return true;
}

// The two halves are the two ends of one message.
bool meet(std::span<const ir::Stage> stages, const Action& send, const Action& receive) {
  if (send.microbatch != receive.microbatch) return false;
  const ir::Stage& from = stages[static_cast<std::size_t>(send.stage)];
  if (send.kind == ActionKind::SendForward)
    return receive.kind == ActionKind::RecvForward && from.next == receive.stage;
  return send.kind == ActionKind::SendBackward && receive.kind == ActionKind::RecvBackward &&
         from.prev == receive.stage;
}

// The half in which the rank is blocked is done: its batch goes out.
void Lowering::complete(RankState& rank) {
  Action first = rank.items[rank.at++];
  if (rank.joined_count) first.flags |= Action::kJoined;
  rank.out.push_back(first);
  for (int i = 0; i < rank.joined_count; ++i) {
    Action receive = rank.joined[static_cast<std::size_t>(i)];
    if (i + 1 < rank.joined_count) receive.flags |= Action::kJoined;
    rank.out.push_back(receive);
  }
  rank.joined_count = 0;
  rank.blocked = false;
}

// Runs a rank until it blocks or ends.
void Lowering::advance(int r) {
  RankState& rank = ranks_[static_cast<std::size_t>(r)];
  for (; rank.at < rank.items.size();) {
    const Action& item = rank.items[rank.at];
    if (!ir::is_p2p(item.kind)) {
      rank.out.push_back(item);
      ++rank.at;
      continue;
    }
    if (rank.taken[rank.at]) {
      ++rank.at;
      continue;
    }
    RankState& peer = ranks_[static_cast<std::size_t>(item.peer)];
    if (peer.blocked) {
      const Action& other = peer.items[peer.at];
      if (ir::is_send(item.kind) ? meet(stages_, item, other) : meet(stages_, other, item)) {
        complete(peer);
        runnable_.push_back(item.peer);
        complete(rank);
        continue;
      }
    }
    rank.blocked = true;
    return;
  }
}

// All ranks are blocked or done. Every rank waits for one other, so following that edge from each rank finds all
// circles.
bool Lowering::resolve_circles() {
  std::vector<int> seen_from(ranks_.size(), -1), circle;
  bool any_blocked = false;
  for (int start = 0; start < static_cast<int>(ranks_.size()); ++start) {
    int r = start;
    auto rank = [&]() -> const RankState& { return ranks_[static_cast<std::size_t>(r)]; };
    any_blocked |= rank().blocked;
    while (rank().blocked && seen_from[static_cast<std::size_t>(r)] < 0) {
      seen_from[static_cast<std::size_t>(r)] = start;
      r = rank().items[rank().at].peer;
    }
    if (!rank().blocked || seen_from[static_cast<std::size_t>(r)] != start) continue;
    circle.clear();
    const int first = r;
    do {
      circle.push_back(r);
      r = rank().items[rank().at].peer;
    } while (r != first);
    if (!resolve(circle)) return false;
  }
  return !any_blocked || !runnable_.empty() || report_endless();
}

// circle[i] waits for circle[i + 1], the last for the first.
bool Lowering::resolve(std::span<const int> circle) {
  auto blocked_in_send = [&](std::size_t i) {
    const RankState& rank = ranks_[static_cast<std::size_t>(circle[i])];
    return ir::is_send(rank.items[rank.at].kind);
  };
  auto next = [&](std::size_t i) { return i + 1 == circle.size() ? 0 : i + 1; };
  bool both = false, any = false;
  for (std::size_t i = 0; i < circle.size(); ++i) {
    any |= blocked_in_send(i);
    both |= blocked_in_send(i) && blocked_in_send(next(i));
  }
  if (!any) return report_circle(circle);
  auto takes = [&](std::size_t sender) { return blocked_in_send(sender) && (!both || blocked_in_send(next(sender))); };
  std::vector<int> done;
  for (std::size_t i = 0; i < circle.size(); ++i) {
    if (!takes(i)) continue;
    if (!take(circle[next(i)], circle[i])) return false;
    done.push_back(circle[i]);
  }
  for (int r : done) {
    complete(ranks_[static_cast<std::size_t>(r)]);
    runnable_.push_back(r);
  }
  return true;
}

// Moves the receive of what `sender` is blocked in to where rank r is blocked.
bool Lowering::take(int r, int sender) {
  const RankState& from = ranks_[static_cast<std::size_t>(sender)];
  const Action& send = from.items[from.at];
  const ir::Stage& stage = stages_[static_cast<std::size_t>(send.stage)];
  Action key = send;
  const bool forward = send.kind == ActionKind::SendForward;
  key.kind = forward ? ActionKind::RecvForward : ActionKind::RecvBackward;
  key.stage = forward ? stage.next : stage.prev;
  const std::uint32_t index = receive_at_[slot(key)];
  if (index == kNowhere)
    return fail("rank " + std::to_string(sender) + ": " + ir::action_text({&send, 1}) + " has no receive on rank " +
                std::to_string(r));
  RankState& rank = ranks_[static_cast<std::size_t>(r)];
  rank.taken[index] = 1;
  const Action& receive = rank.items[index];
  if (!ir::is_send(rank.items[rank.at].kind)) {
    rank.out.push_back(receive);
    return true;
  }
  if (rank.joined_count == kMaxBatch - 1) {
    // The batch is full. Its receives arrived while the send had not met its other side, so they may as well come
    // before.
    rank.out.insert(rank.out.end(), rank.joined.begin(), rank.joined.end());
    rank.joined_count = 0;
  }
  rank.joined[static_cast<std::size_t>(rank.joined_count++)] = receive;
  return true;
}

bool Lowering::report_circle(std::span<const int> circle) {
  std::string message = "the order of forwards and backwards contradicts itself across ranks: ";
  for (std::size_t i = 0; i < circle.size(); ++i) {
    const RankState& rank = ranks_[static_cast<std::size_t>(circle[i])];
    message += (i ? ", rank " : "rank ") + std::to_string(circle[i]) + " waits at " +
               ir::action_text({&rank.items[rank.at], 1});
  }
  return fail(std::move(message));
}

// Somebody waits for a rank that has ended.
bool Lowering::report_endless() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankState& rank = ranks_[r];
    if (!rank.blocked) continue;
    const Action& item = rank.items[rank.at];
    const RankState& peer = ranks_[static_cast<std::size_t>(item.peer)];
    if (peer.blocked) continue;
    return fail("rank " + std::to_string(r) + ": " + ir::action_text({&item, 1}) + " has no other side on rank " +
                std::to_string(item.peer));
  }
  return true;
}

}  // namespace

bool lower_communication(std::span<const ir::Stage> stages, ir::Program& program, ir::DiagnosticSink& sink) {
  return Lowering(stages, program, sink).run();
}

bool run_communication(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink& sink) {
  bool ok = true;
  for (ir::Program& program : plan.programs) ok &= lower_communication(plan.stages, program, sink);
  if (ok) plan.level = ir::Level::Communication;
  return ok;
}

}  // namespace fem::passes
