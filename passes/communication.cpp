#include "passes/communication.hpp"

#include <algorithm>
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

constexpr int kMaxBatch = 4;

struct RankState {
  std::size_t next = 0;       // the first action of the schedule's order that is not among the items yet
  std::vector<Action> items;  // one action or pair: its receives, itself, its sends
  std::size_t at = 0;         // the item that runs next or blocks
  bool blocked = false;
  std::array<Action, kMaxBatch - 1> joined;  // receives that share the blocked send's batch; all have arrived
  int joined_count = 0;
  std::int64_t walk = 0;  // the last walk along who waits for whom that came by
  std::vector<Action> out;

  const Action& item() const { return items[at]; }
};

// What is known of a receive.
enum ReceiveBit : std::uint8_t { kWanted = 1, kTaken = 2 };  // somebody consumes it; it has been moved forward

class Lowering {
 public:
  Lowering(std::span<const ir::Stage> stages, ir::Program& program, ir::DiagnosticSink& sink)
      : stages_(stages),
        program_(program),
        sink_(sink),
        ranks_(program.ranks.size()),
        receives_(2 * stages.size() * static_cast<std::size_t>(program.microbatches), 0) {}

  bool run() {
    if (!check()) return false;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      state(r).out.reserve(3 * actions(r).size());
      runnable_.push_back(r);
    }
    do {
      while (!runnable_.empty()) {
        const int r = runnable_.back();
        runnable_.pop_back();
        advance(r);
      }
      if (!resolve_cycles()) return false;
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

  bool has_operands(const Action& action) const {
    return action.stage >= 0 && has_stage(action.stage) && action.microbatch >= 0 &&
           action.microbatch < program_.microbatches;
  }
  const std::vector<Action>& actions(int r) const { return program_.ranks[static_cast<std::size_t>(r)].actions; }
  RankState& state(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  bool check();
  bool receive_of(const Action& action, int r, Action& result) const;
  bool send_of(const Action& action, int r, Action& result) const;
  bool open_next(int r);
  bool half(ActionKind kind, const Action& near, int other_stage, int r, Action& result) const;
  void advance(int r);
  void complete(RankState& rank);
  bool resolve_cycles();
  bool resolve(std::span<const int> cycle);
  bool take(int r, int sender);
  bool report_cycle(std::span<const int> cycle);
  bool check_ended();

  std::span<const ir::Stage> stages_;
  ir::Program& program_;
  ir::DiagnosticSink& sink_;
  std::vector<RankState> ranks_;
  std::vector<std::uint8_t> receives_;  // by slot(): ReceiveBits
  std::vector<int> runnable_, newly_blocked_, cycle_;
  std::int64_t walk_ = 0, first_walk_ = 1;  // number of the walk from rank to rank; the first since all were blocked
};

bool is_forward(ActionKind kind) { return kind == ActionKind::Forward; }

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

bool Lowering::receive_of(const Action& action, int r, Action& result) const {
  if (is_forward(action.kind))
    return half(ActionKind::RecvForward, action, stages_[static_cast<std::size_t>(action.stage)].prev, r, result);
  return ir::is_input_backward(action.kind) &&
         half(ActionKind::RecvBackward, action, stages_[static_cast<std::size_t>(action.stage)].next, r, result);
}

bool Lowering::send_of(const Action& action, int r, Action& result) const {
  if (is_forward(action.kind))
    return half(ActionKind::SendForward, action, stages_[static_cast<std::size_t>(action.stage)].next, r, result);
  return ir::is_input_backward(action.kind) &&
         half(ActionKind::SendBackward, action, stages_[static_cast<std::size_t>(action.stage)].prev, r, result);
}

// Operands that the run indexes with; which receives there are.
bool Lowering::check() {
  for (const ir::Stage& stage : stages_)
    if (!has_rank(stage.pp) || !has_stage(stage.prev) || !has_stage(stage.next))
      return fail("a stage names a rank or a stage that does not exist");
  Action receive;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
    for (const Action& a : actions(r)) {
      if (!is_forward(a.kind) && !ir::is_input_backward(a.kind)) continue;
      if (!has_operands(a))
        return fail("rank " + std::to_string(r) + ": " + ir::action_text({&a, 1}) + " names no stage and microbatch");
      if (receive_of(a, r, receive)) receives_[slot(receive)] = kWanted;
    }
  return true;
}

// Takes in the next action or overlapped pair, the receives of its members before and their sends after it. False at
// the end of the program.
bool Lowering::open_next(int r) {
  RankState& rank = state(r);
  if (rank.next == actions(r).size()) return false;
  const std::size_t count = ir::batch_size(actions(r), rank.next);
  const std::span<const Action> batch = std::span(actions(r)).subspan(rank.next, count);
  rank.next += count;
  rank.items.clear();
  rank.at = 0;
  Action crossing;
  for (const Action& a : batch)
    if (receive_of(a, r, crossing)) rank.items.push_back(crossing);
  rank.items.insert(rank.items.end(), batch.begin(), batch.end());
  for (const Action& a : batch)
    if (send_of(a, r, crossing)) rank.items.push_back(crossing);
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
  RankState& rank = state(r);
  while (rank.at < rank.items.size() || open_next(r)) {
    const Action& item = rank.item();
    if (!ir::is_p2p(item.kind)) {
      rank.out.push_back(item);
      ++rank.at;
      continue;
    }
    if (!ir::is_send(item.kind) && receives_[slot(item)] & kTaken) {
      ++rank.at;
      continue;
    }
    RankState& peer = state(item.peer);
    const bool met =
        peer.blocked && (ir::is_send(item.kind) ? meet(stages_, item, peer.item()) : meet(stages_, peer.item(), item));
    if (!met) {
      rank.blocked = true;
      newly_blocked_.push_back(r);
      return;
    }
    complete(peer);
    runnable_.push_back(item.peer);
    complete(rank);
  }
}

// All ranks are blocked or done. Every rank waits for one other, so following that edge finds all cycles; a cycle that
// was not there before has a rank that blocked since.
bool Lowering::resolve_cycles() {
  for (const int start : newly_blocked_) {
    ++walk_;
    int r = start;
    while (state(r).blocked && state(r).walk < first_walk_) {
      state(r).walk = walk_;
      r = state(r).item().peer;
    }
    if (!state(r).blocked || state(r).walk != walk_) continue;
    cycle_.clear();
    const int first = r;
    do {
      cycle_.push_back(r);
      r = state(r).item().peer;
    } while (r != first);
    if (!resolve(cycle_)) return false;
  }
  newly_blocked_.clear();
  first_walk_ = walk_ + 1;
  return !runnable_.empty() || check_ended();
}

// cycle[i] waits for cycle[i + 1], the last for the first.
bool Lowering::resolve(std::span<const int> cycle) {
  auto blocked_in_send = [&](std::size_t i) {
    const RankState& rank = state(cycle[i]);
    return ir::is_send(rank.item().kind);
  };
  auto next = [&](std::size_t i) { return i + 1 == cycle.size() ? 0 : i + 1; };
  bool both = false, any = false;
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    any |= blocked_in_send(i);
    both |= blocked_in_send(i) && blocked_in_send(next(i));
  }
  if (!any) return report_cycle(cycle);
  auto takes = [&](std::size_t sender) { return blocked_in_send(sender) && (!both || blocked_in_send(next(sender))); };
  std::vector<int> done;
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    if (!takes(i)) continue;
    if (!take(cycle[next(i)], cycle[i])) return false;
    done.push_back(cycle[i]);
  }
  for (int r : done) {
    complete(state(r));
    runnable_.push_back(r);
  }
  return true;
}

// Moves the receive of what `sender` is blocked in to where rank r is blocked.
bool Lowering::take(int r, int sender) {
  const RankState& from = state(sender);
  const Action& send = from.item();
  const ir::Stage& stage = stages_[static_cast<std::size_t>(send.stage)];
  Action key = send;
  const bool forward = send.kind == ActionKind::SendForward;
  key.kind = forward ? ActionKind::RecvForward : ActionKind::RecvBackward;
  key.stage = forward ? stage.next : stage.prev;
  std::uint8_t& known = receives_[slot(key)];
  if (known != kWanted)
    return fail("rank " + std::to_string(sender) + ": " + ir::action_text({&send, 1}) + " has no receive on rank " +
                std::to_string(r));
  known |= kTaken;
  RankState& rank = state(r);
  Action receive = key;
  receive.peer = static_cast<std::int16_t>(sender);
  if (!ir::is_send(rank.item().kind)) {
    rank.out.push_back(receive);
    return true;
  }
  if (rank.joined_count == kMaxBatch - 1) {
    // The batch is full. Its receives arrived while the send had not met its other side: they may as well come before.
    rank.out.insert(rank.out.end(), rank.joined.begin(), rank.joined.end());
    rank.joined_count = 0;
  }
  rank.joined[static_cast<std::size_t>(rank.joined_count++)] = receive;
  return true;
}

// From its lowest rank on.
bool Lowering::report_cycle(std::span<const int> cycle) {
  std::vector<int> ranks(cycle.begin(), cycle.end());
  std::ranges::rotate(ranks, std::ranges::min_element(ranks));
  std::string message;
  for (int r : ranks) {
    message +=
        message.empty() ? "the order of forwards and backwards contradicts itself across ranks: rank " : ", rank ";
    message += std::to_string(r) + " waits at " + ir::action_text({&state(r).item(), 1});
  }
  return fail(std::move(message));
}

// Nothing runs any more: each rank has ended, or somebody waits for one that has.
bool Lowering::check_ended() {
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    if (!state(r).blocked || state(state(r).item().peer).blocked) continue;
    const Action& item = state(r).item();
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
