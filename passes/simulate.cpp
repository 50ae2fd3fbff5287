#include "passes/simulate.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "ir/rank_groups.hpp"
#include "ir/text.hpp"
#include "passes/simulated_program.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

constexpr double kNotYet = -1;
constexpr std::size_t kAhead = 12;  // actions from the memory that is asked for to its use

// Rendezvous: a message one side of which has come. Asynchronous: a result, and the rank that waits for it.
struct Event {
  double time = kNotYet;
  std::int16_t waiter = -1;
  std::int16_t peer = -1;  // the other side of the message
  bool send = false;       // the side that has come sends
};
static_assert(sizeof(Event) == 16);

struct RankState {
  std::span<const Action> actions;
  ActionTime* times = nullptr;   // of each action
  std::size_t at = 0, size = 0;  // the batch that runs next or blocks
  double clock = 0, batch_end = 0;
  int pending = 0;            // halves of the current batch whose other side has not come
  std::int32_t awaited = -1;  // a rank that this one waits for
  bool blocked = false, in_collective = false;
  simulating::SpanCount span;
};

class Simulator {
 public:
  Simulator(const ir::Plan& plan, const ir::Program& program, const CostModel& costs, ir::DiagnosticSink& sink,
            SimulateOptions options)
      : plan_(plan),
        program_(program),
        costs_(costs),
        sink_(sink),
        serial_(options.communication == Communication::Rendezvous),
        groups_(plan.stages, static_cast<int>(program.ranks.size())),
        ranks_(program.ranks.size()),
        collective_(ir::kGroups * program.ranks.size()) {
    events_.resize(2 * plan.stages.size() * static_cast<std::size_t>(program.microbatches));
    for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r].actions = program.ranks[r].actions;
  }

  std::optional<Simulation> run();

 private:
  struct Collective {
    std::vector<int> here;  // ranks that have come
    double latest = 0;
  };

  std::span<const Action> actions(int r) const { return ranks_[static_cast<std::size_t>(r)].actions; }
  RankState& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  Event& event(bool backward, int stage, int microbatch) {
    return events_[(static_cast<std::size_t>(backward) * plan_.stages.size() + static_cast<std::size_t>(stage)) *
                       static_cast<std::size_t>(program_.microbatches) +
                   static_cast<std::size_t>(microbatch)];
  }
  const ir::Stage& stage(int s) const { return plan_.stages[static_cast<std::size_t>(s)]; }

  // The pipeline ranks that meet with r over that group; replicas of a pipeline coordinate run in step.
  std::span<const int> members(ir::Group group, int r) const { return groups_.members(group, r); }
  Collective& collective(ir::Group group, int r) {
    return collective_[static_cast<std::size_t>(group) * ranks_.size() +
                       static_cast<std::size_t>(members(group, r).front())];
  }
  void advance(int r);
  bool exchange(int r, std::span<const Action> halves);
  bool meet(int r, const Action& half);
  bool compute(int r, std::span<const Action> batch);
  bool ready(int r, const Action& action, double& start);
  bool needs(int r, Event& produced, int producer, double transfer, double& start);
  void publish(const Action& action, double end);
  void wake(Event& event);
  bool collect(int r, const Action& action);
  void finish(int r, double start, double end);
  std::optional<Simulation> report_blocked();

  const ir::Plan& plan_;
  const ir::Program& program_;
  const CostModel& costs_;
  ir::DiagnosticSink& sink_;
  bool serial_;
  ir::RankGroups groups_;
  std::vector<RankState> ranks_;
  std::vector<Event>
      events_;  // Rendezvous: by message, when its first side came; Asynchronous: by result, when it was made
  std::vector<Collective> collective_;  // by group and its first member
  std::vector<int> runnable_;
  Simulation result_;
};

std::optional<Simulation> Simulator::run() {
  result_.ranks.resize(ranks_.size());
  result_.actions.resize(ranks_.size());
  for (int r = static_cast<int>(ranks_.size()) - 1; r >= 0; --r) {
    std::vector<ActionTime>& times = result_.actions[static_cast<std::size_t>(r)];
    times.resize(actions(r).size());
    rank(r).times = times.data();
    runnable_.push_back(r);
  }
  while (!runnable_.empty()) {
    const int r = runnable_.back();
    runnable_.pop_back();
    advance(r);
  }
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
    if (rank(r).at < actions(r).size()) return report_blocked();
  simulating::Summary summary(result_);
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].span.started()) summary.add(result_.ranks[r]);
  return std::move(result_);
}

// Runs a rank until it blocks or ends.
void Simulator::advance(int r) {
  RankState& state = rank(r);
  state.blocked = false;
  const std::span<const Action> all = state.actions;
  while (state.at < all.size()) {
    state.size = ir::batch_size(all, state.at);
    const std::span<const Action> batch = all.subspan(state.at, state.size);
    bool done = true;
    if (ir::is_p2p(batch.front().kind)) {
      done = exchange(r, batch);
    } else if (members(batch.front().group, r).size() > 1) {
      done = collect(r, batch.front());
    } else {
      done = compute(r, batch);
    }
    if (done) continue;
    state.blocked = true;
    return;
  }
}

// Posts all halves of a batch. True when all have met their other side: the rank has moved on.
bool Simulator::exchange(int r, std::span<const Action> halves) {
  RankState& state = rank(r);
  state.batch_end = state.clock;
  state.pending = 0;
  if (serial_)
    for (const Action& half : halves) state.pending += !meet(r, half);
  if (state.pending) return false;
  finish(r, state.clock, state.batch_end);
  return true;
}

// One half: times the message where the other side has come, else leaves word.
bool Simulator::meet(int r, const Action& half) {
  Event& message = event(ir::goes_backward(half.kind), ir::sending_stage(plan_.stages, half), half.microbatch);
  RankState& state = rank(r);
  const bool send = ir::is_send(half.kind);
  if (message.waiter != half.peer || message.peer != r || message.send == send) {
    message = {state.clock, static_cast<std::int16_t>(r), half.peer, send};
    state.awaited = half.peer;
    return false;
  }
  RankState& other = rank(half.peer);
  const double begin = std::max(message.time, state.clock);
  const double end = begin + costs_.transfer(plan_, send ? r : half.peer, send ? half.peer : r, half);
  message.waiter = -1;
  state.batch_end = std::max(state.batch_end, end);
  other.batch_end = std::max(other.batch_end, end);
  if (--other.pending == 0) {
    finish(half.peer, other.clock, other.batch_end);
    runnable_.push_back(half.peer);
  }
  return true;
}

bool Simulator::compute(int r, std::span<const Action> batch) {
  RankState& state = rank(r);
  double start = state.clock;
  if (!serial_)
    for (const Action& a : batch)
      if (!ready(r, a, start)) return false;
  double end = start;
  for (std::size_t i = 0; i < batch.size(); i += 2)
    end += costs_.action(plan_, r, batch[i], i + 1 < batch.size() ? &batch[i + 1] : nullptr);
  if (!serial_)
    for (const Action& a : batch) publish(a, end);
  state.span.count(result_.ranks[static_cast<std::size_t>(r)], batch, {start, end}, program_.forward_only);
  finish(r, start, end);
  return true;
}

// Asynchronous: whether what the action needs has been made, and the earliest start.
bool Simulator::ready(int r, const Action& action, double& start) {
  if (!ir::is_computation(action.kind)) return true;
  const ir::Stage& own = stage(action.stage);
  auto from_other_stage = [&](bool backward, int other) {
    if (other < 0) return true;
    const int producer = stage(other).pp;
    Action half = action;
    half.kind = backward ? ActionKind::RecvBackward : ActionKind::RecvForward;
    const double transfer = producer == r ? 0 : costs_.transfer(plan_, producer, r, half);
    return needs(r, event(backward, other, action.microbatch), producer, transfer, start);
  };
  if (action.kind == ActionKind::Forward) return from_other_stage(false, own.prev);
  if (ir::is_input_backward(action.kind))
    return needs(r, event(false, action.stage, action.microbatch), r, 0, start) && from_other_stage(true, own.next);
  if (action.kind == ActionKind::BackwardWeight)
    return needs(r, event(true, action.stage, action.microbatch), r, 0, start);
  return true;
}

bool Simulator::needs(int r, Event& produced, int producer, double transfer, double& start) {
  if (produced.time == kNotYet) {
    produced.waiter = static_cast<std::int16_t>(r);
    rank(r).awaited = producer;
    return false;
  }
  start = std::max(start, produced.time + transfer);
  return true;
}

void Simulator::publish(const Action& action, double end) {
  const bool backward = ir::is_input_backward(action.kind);
  if (action.kind != ActionKind::Forward && !backward) return;
  Event& made = event(backward, action.stage, action.microbatch);
  made.time = end;
  if (made.waiter >= 0) runnable_.push_back(std::exchange(made.waiter, -1));
}

// A collective over pipeline ranks: all of them end together.
bool Simulator::collect(int r, const Action& action) {
  Collective& meeting = collective(action.group, r);
  RankState& state = rank(r);
  meeting.latest = meeting.here.empty() ? state.clock : std::max(meeting.latest, state.clock);
  meeting.here.push_back(r);
  state.in_collective = true;
  if (meeting.here.size() < members(action.group, r).size()) return false;
  for (int member : meeting.here) {
    RankState& other = rank(member);
    other.in_collective = false;
    const double cost = costs_.action(plan_, member, actions(member)[other.at], nullptr);
    finish(member, other.clock, meeting.latest + cost);
    if (member != r) runnable_.push_back(member);
  }
  meeting.here.clear();
  return true;
}

// The current batch is over.
void Simulator::finish(int r, double start, double end) {
  RankState& state = rank(r);
  for (std::size_t i = 0; i < state.size; ++i) state.times[state.at + i] = {start, end};
  state.clock = end;
  state.at += state.size;
  // Ranks take turns at every message, so that no prefetcher follows them all.
  const std::size_t ahead = std::min(state.at + kAhead, state.actions.size());
  __builtin_prefetch(state.actions.data() + ahead);
  __builtin_prefetch(state.times + ahead, 1);
  result_.step_time = std::max(result_.step_time, end);
}

std::optional<Simulation> Simulator::report_blocked() {
  int r = 0;
  while (rank(r).at == actions(r).size()) ++r;
  std::string message = "program " + program_.name + " blocks";
  // Follow who waits for whom until a rank comes again, ends, or stands in a collective.
  std::vector<std::uint8_t> seen(ranks_.size(), 0);
  while (r >= 0 && !std::exchange(seen[static_cast<std::size_t>(r)], 1)) {
    if (rank(r).at == actions(r).size()) {
      message += ", rank " + std::to_string(r) + " has ended";
      break;
    }
    message += std::string(message.ends_with("blocks") ? ":" : ",") + " rank " + std::to_string(r) + " waits at " +
               ir::action_text(actions(r).subspan(rank(r).at, rank(r).size));
    r = rank(r).in_collective ? -1 : rank(r).awaited;
  }
  sink_.error({}, std::move(message));
  return std::nullopt;
}

}  // namespace

std::optional<Simulation> simulate(const ir::Plan& plan, const ir::Program& program, const CostModel& costs,
                                   ir::DiagnosticSink& sink, SimulateOptions options) {
  if (!simulating::check_operands(plan, program, sink)) return std::nullopt;
  if (plan.level == ir::Level::Lane && options.communication == Communication::Rendezvous) {
    return simulating::run_lanes(plan, program, costs, sink);
  }
  return Simulator(plan, program, costs, sink, options).run();
}

}  // namespace fem::passes
