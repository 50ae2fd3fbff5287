// A plan at Level::Lane under rendezvous: each lane of a rank is a serial queue of its own.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "ir/rank_groups.hpp"
#include "ir/text.hpp"
#include "passes/overlap.hpp"
#include "passes/simulated_program.hpp"

namespace fem::passes::simulating {
namespace {

using ir::Action;
using ir::ActionKind;
using ir::Lane;

constexpr auto kLanes = static_cast<std::size_t>(ir::kLanes);
constexpr int kNobody = -1;

struct Batch {
  std::uint32_t action, size;
  std::uint32_t first_wait = 0, end_wait = 0;  // of the rank's waits
};

// One lane of one rank.
struct Queue {
  std::vector<Batch> batches;
  std::vector<double> ends;  // of the batches that are over
  ActionTime now;            // of the current batch, as far as its halves have met their other sides
  double reached = 0;        // when the current batch could start, but for the other sides
  int pending = 0;           // halves of it whose other side has not come
  bool in_collective = false;
  int awaits = kNobody;      // a queue that this one waits for
  std::array<std::uint32_t, kLanes> wakes{};  // by lane of the rank: it waits for so many batches of this one; 0: none
  std::vector<ActionTime> moves;              // when data was under way, by start
  std::size_t sorted = 0;                     // of them: those of batches that are over

  double free_at() const { return ends.empty() ? 0 : ends.back(); }
  bool done() const { return ends.size() == batches.size(); }
  const Batch& batch() const { return batches[ends.size()]; }
};

// A message one side of which has come.
struct Message {
  double time = 0;
  int queue = kNobody;     // of that side
  std::int16_t peer = -1;  // the rank of the other side
  bool send = false;       // the side that has come sends
};

struct Meeting {
  std::vector<int> here;  // queues that have come
  double latest = 0;
};

class LaneSimulator {
 public:
  LaneSimulator(const ir::Plan& plan, const ir::Program& program, const CostModel& costs, ir::DiagnosticSink& sink)
      : plan_(plan),
        program_(program),
        costs_(costs),
        sink_(sink),
        groups_(plan.stages, static_cast<int>(program.ranks.size())),
        queues_(program.ranks.size() * kLanes),
        spans_(program.ranks.size()),
        messages_(2 * plan.stages.size() * static_cast<std::size_t>(program.microbatches)),
        meetings_(ir::kGroups * program.ranks.size()) {}

  std::optional<Simulation> run() {
    result_.ranks.resize(program_.ranks.size());
    for (int r = 0; r < static_cast<int>(program_.ranks.size()); ++r) {
      result_.actions.emplace_back(actions(r).size());
      divide(r);
    }
    for (int q = static_cast<int>(queues_.size()) - 1; q >= 0; --q) runnable_.push_back(q);
    while (!runnable_.empty()) {
      const int q = runnable_.back();
      runnable_.pop_back();
      advance(q);
    }
    for (const Queue& queue : queues_) {
      if (!queue.done()) return report_blocked();
    }
    summarise();
    return std::move(result_);
  }

 private:
  std::span<const Action> actions(int r) const { return program_.ranks[static_cast<std::size_t>(r)].actions; }
  std::span<const ir::Wait> waits(int r) const { return program_.ranks[static_cast<std::size_t>(r)].waits; }
  static int rank_of(int q) { return q / ir::kLanes; }
  static Lane lane_of(int q) { return static_cast<Lane>(q % ir::kLanes); }
  static int index(int r, Lane lane) { return r * ir::kLanes + static_cast<int>(lane); }
  Queue& queue(int q) { return queues_[static_cast<std::size_t>(q)]; }
  std::span<const Action> batch_of(int q) {
    const Batch& batch = queue(q).batch();
    return actions(rank_of(q)).subspan(batch.action, batch.size);
  }

  void divide(int r);
  void advance(int q);
  bool waited(int q);
  bool exchange(int q, std::span<const Action> halves);
  bool meet(int q, const Action& half);
  bool collect(int q, const Action& action);
  void work(int q, std::span<const Action> batch);
  void finish(int q, ActionTime time);
  std::optional<Simulation> report_blocked();
  void summarise();

  const ir::Plan& plan_;
  const ir::Program& program_;
  const CostModel& costs_;
  ir::DiagnosticSink& sink_;
  ir::RankGroups groups_;
  std::vector<Queue> queues_;  // by rank and lane
  std::vector<SpanCount> spans_;
  std::vector<Message> messages_;  // by direction, sender's stage and microbatch
  std::vector<Meeting> meetings_;  // by group and its first member
  std::vector<int> runnable_;
  Simulation result_;
};

// Batches of a rank to its lanes, each with its waits.
void LaneSimulator::divide(int r) {
  std::uint32_t wait = 0;
  for (std::size_t i = 0; i < actions(r).size();) {
    const std::size_t size = ir::batch_size(actions(r), i);
    Batch batch{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(size), wait, wait};
    while (wait < waits(r).size() && waits(r)[wait].action < i + size) batch.end_wait = ++wait;
    queue(index(r, actions(r)[i].lane)).batches.push_back(batch);
    i += size;
  }
  for (int l = 0; l < ir::kLanes; ++l) {
    Queue& lane = queue(index(r, static_cast<Lane>(l)));
    lane.ends.reserve(lane.batches.size());
  }
}

// Runs a lane until it blocks or ends.
void LaneSimulator::advance(int q) {
  Queue& lane = queue(q);
  while (!lane.done() && waited(q)) {
    const std::span<const Action> batch = batch_of(q);
    if (ir::is_p2p(batch.front().kind)) {
      if (!exchange(q, batch)) return;
    } else if (groups_.members(batch.front().group, rank_of(q)).size() > 1) {
      if (!collect(q, batch.front())) return;
    } else {
      work(q, batch);
    }
  }
}

// Whether all that the lane's batch waits for is over; then `reached` is when. Else the lane that is behind wakes this
// one.
bool LaneSimulator::waited(int q) {
  Queue& lane = queue(q);
  lane.reached = lane.free_at();
  const Batch& batch = lane.batch();
  for (std::uint32_t w = batch.first_wait; w < batch.end_wait; ++w) {
    const ir::Wait& wait = waits(rank_of(q))[w];
    const int other = index(rank_of(q), wait.lane);
    if (queue(other).ends.size() < wait.count) {
      queue(other).wakes[static_cast<std::size_t>(lane_of(q))] = wait.count;
      lane.awaits = other;
      return false;
    }
    if (wait.count > 0) lane.reached = std::max(lane.reached, queue(other).ends[wait.count - 1]);
  }
  return true;
}

// Posts all halves of a batch. True when all have met their other side: the lane has moved on.
bool LaneSimulator::exchange(int q, std::span<const Action> halves) {
  Queue& lane = queue(q);
  lane.now = {std::numeric_limits<double>::infinity(), lane.reached};
  lane.pending = 0;
  for (const Action& half : halves) lane.pending += !meet(q, half);
  if (lane.pending > 0) return false;
  finish(q, lane.now);
  return true;
}

// One half: times the message where the other side has come, else leaves word.
bool LaneSimulator::meet(int q, const Action& half) {
  const bool send = ir::is_send(half.kind);
  const int r = rank_of(q);
  Message& message = messages_[ir::message_index(plan_.stages, program_.microbatches, half)];
  Queue& lane = queue(q);
  const bool there = message.queue != kNobody && rank_of(message.queue) == half.peer && message.peer == r;
  if (!there || message.send == send) {
    message = {lane.reached, q, half.peer, send};
    lane.awaits = index(half.peer, lane_of(q));
    return false;
  }
  const int other = std::exchange(message.queue, kNobody);
  const double begin = std::max(message.time, lane.reached);
  const double end = begin + costs_.transfer(plan_, send ? r : half.peer, send ? half.peer : r, half);
  for (Queue* side : {&lane, &queue(other)}) {
    side->now = {std::min(side->now.start, begin), std::max(side->now.end, end)};
    side->moves.push_back({begin, end});
  }
  if (--queue(other).pending == 0) {
    finish(other, queue(other).now);
    runnable_.push_back(other);
  }
  return true;
}

// A collective over pipeline ranks: it runs when all have come.
bool LaneSimulator::collect(int q, const Action& action) {
  const std::span<const int> members = groups_.members(action.group, rank_of(q));
  Meeting& meeting = meetings_[static_cast<std::size_t>(action.group) * program_.ranks.size() +
                               static_cast<std::size_t>(members.front())];
  Queue& lane = queue(q);
  meeting.latest = meeting.here.empty() ? lane.reached : std::max(meeting.latest, lane.reached);
  meeting.here.push_back(q);
  lane.in_collective = true;
  if (meeting.here.size() < members.size()) return false;
  for (const int member : std::exchange(meeting.here, {})) {
    queue(member).in_collective = false;
    const double cost = costs_.action(plan_, rank_of(member), batch_of(member).front(), nullptr);
    const ActionTime time{meeting.latest, meeting.latest + cost};
    queue(member).moves.push_back(time);
    finish(member, time);
    if (member != q) runnable_.push_back(member);
  }
  return true;
}

// What needs no other pipeline rank. Replicas of a pipeline coordinate run in step.
void LaneSimulator::work(int q, std::span<const Action> batch) {
  Queue& lane = queue(q);
  const int r = rank_of(q);
  ActionTime time{lane.reached, lane.reached};
  for (std::size_t i = 0; i < batch.size(); i += 2) {
    time.end += costs_.action(plan_, r, batch[i], i + 1 < batch.size() ? &batch[i + 1] : nullptr);
  }
  if (lane_of(q) == Lane::Compute) {
    spans_[static_cast<std::size_t>(r)].count(result_.ranks[static_cast<std::size_t>(r)], batch, time,
                                              program_.forward_only);
  } else {
    lane.moves.push_back(time);
  }
  finish(q, time);
}

// The current batch is over.
void LaneSimulator::finish(int q, ActionTime time) {
  Queue& lane = queue(q);
  const Batch& batch = lane.batch();
  const int r = rank_of(q);
  std::fill_n(result_.actions[static_cast<std::size_t>(r)].begin() + batch.action, batch.size, time);
  lane.ends.push_back(time.end);
  lane.awaits = kNobody;
  // At most four halves, which may have met in another order.
  std::sort(lane.moves.begin() + static_cast<std::ptrdiff_t>(lane.sorted), lane.moves.end(),
            [](const ActionTime& a, const ActionTime& b) { return a.start < b.start; });
  lane.sorted = lane.moves.size();
  for (std::size_t l = 0; l < kLanes; ++l) {
    if (lane.wakes[l] == 0 || lane.ends.size() < lane.wakes[l]) continue;
    lane.wakes[l] = 0;
    runnable_.push_back(index(r, static_cast<Lane>(l)));
  }
  result_.step_time = std::max(result_.step_time, time.end);
}

std::optional<Simulation> LaneSimulator::report_blocked() {
  int q = 0;
  while (queue(q).done()) ++q;
  std::string message = "program " + program_.name + " blocks";
  // Follow who waits for whom until a lane comes again, ends, or stands in a collective.
  std::vector<std::uint8_t> seen(queues_.size(), 0);
  while (q != kNobody && !std::exchange(seen[static_cast<std::size_t>(q)], 1)) {
    const std::string where =
        "rank " + std::to_string(rank_of(q)) + ", lane " + std::string(ir::name(lane_of(q))) + " ";
    message += message.ends_with("blocks") ? ": " : "; ";
    if (queue(q).done()) {
      message += where + "has ended";
      break;
    }
    message += where + "waits at " + ir::action_text(batch_of(q));
    q = queue(q).in_collective ? kNobody : queue(q).awaits;
  }
  sink_.error({}, std::move(message));
  return std::nullopt;
}

void LaneSimulator::summarise() {
  Summary summary(result_);
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    if (spans_[r].started()) summary.add(result_.ranks[r]);
    std::vector<ActionTime> computes;
    const Queue& compute = queue(index(static_cast<int>(r), Lane::Compute));
    for (const Batch& batch : compute.batches) computes.push_back(result_.actions[r][batch.action]);
    result_.ranks[r].overlap = overlap(computes, merged({queue(index(static_cast<int>(r), Lane::P2p)).moves,
                                                         queue(index(static_cast<int>(r), Lane::Collective)).moves,
                                                         queue(index(static_cast<int>(r), Lane::Copy)).moves}));
  }
}

}  // namespace

std::optional<Simulation> run_lanes(const ir::Plan& plan, const ir::Program& program, const CostModel& costs,
                                    ir::DiagnosticSink& sink) {
  return LaneSimulator(plan, program, costs, sink).run();
}

}  // namespace fem::passes::simulating
