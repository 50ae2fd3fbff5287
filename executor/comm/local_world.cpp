#include "executor/comm/local_world.hpp"

#include "executor/comm/checks.hpp"
#include "executor/comm/local_state.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

// Marks what a rank does for as long as it does it.
class InOperation {
 public:
  InOperation(OperationRecord& record, const Operation& operation) : record_(record) { record_.enter(operation); }
  ~InOperation() { record_.leave(); }
  InOperation(const InOperation&) = delete;
  InOperation& operator=(const InOperation&) = delete;

 private:
  OperationRecord& record_;
};

// Barriers have no lane: their errors tell where the compute lane stands.
ir::Lane lane_of(std::size_t channel) {
  return channel == kBarrierChannel ? ir::Lane::Compute : static_cast<ir::Lane>(channel);
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalState> state, int rank)
      : state_(std::move(state)), self_(state_->rank(rank)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return state_->topology().size(); }
  int group_size(ir::Group group) const override {
    return static_cast<int>(state_->membership(group, rank_).ranks.size());
  }
  int group_rank(ir::Group group) const override {
    return static_cast<int>(state_->membership(group, rank_).member);
  }
  Progress& progress() override { return self_.progress; }

  void exchange(std::span<const P2pHalf> halves, ir::Lane lane) override;
  void all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override {
    collective(group, {OperationKind::all_gather, send, recv, bytes, 0}, channel_of(lane));
  }
  void all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override {
    collective(group, {OperationKind::all_to_all, send, recv, bytes, 0}, channel_of(lane));
  }
  void broadcast(ir::Group group, int root, void* data, std::size_t bytes, ir::Lane lane) override {
    check_root(*this, group, root);
    collective(group, {OperationKind::broadcast, data, data, bytes, root}, channel_of(lane));
  }
  void barrier(ir::Group group) override { collective(group, {.kind = OperationKind::barrier}, kBarrierChannel); }

  void fail(const std::string& reason) noexcept override { state_->fail(rank_, reason); }

 private:
  void collective(ir::Group group, const CollectiveCall& call, std::size_t channel);
  void post(LocalBatch& batch, ir::Lane lane);
  std::uint32_t withdraw(LocalBatch& batch, ir::Lane lane);
  void give_up(LocalBatch& batch, ir::Lane lane, bool timed_out);
  void collective_failed(const Operation& operation, std::size_t channel, GroupMeeting::Outcome outcome);
  [[noreturn]] void raise(const std::string& message, ir::Lane lane);
  Mailbox& mailbox(const P2pHalf& half, ir::Lane lane) {
    return half.send ? state_->mailbox(rank_, half.peer, lane) : state_->mailbox(half.peer, rank_, lane);
  }

  std::shared_ptr<LocalState> state_;
  LocalRank& self_;
  int rank_;
};

void LocalCommunicator::raise(const std::string& message, ir::Lane lane) {
  throw ExecutionError(message, rank_, self_.progress.step(lane), self_.progress.action(lane),
                       state_->topology().place(rank_));
}

void LocalCommunicator::exchange(std::span<const P2pHalf> halves, ir::Lane lane) {
  if (halves.empty()) return;
  check_halves(*this, halves);
  if (state_->failed().load())
    raise("stopped because " + state_->failure() + "; was about to " + text(halves), lane);

  const P2pHalf& first = halves[0];
  InOperation mark(self_.operations[channel_of(lane)],
                   {.kind = OperationKind::exchange, .send = first.send, .peer = first.peer, .tag = first.tag,
                    .bytes = first.bytes, .halves = static_cast<std::uint32_t>(halves.size())});
  LocalBatch& batch = self_.batches[channel_of(lane)];
  batch.start(halves);
  post(batch, lane);
  const bool in_time = self_.signals[channel_of(lane)].wait(
      [&] { return batch.settled() || state_->failed().load(); }, state_->options().timeout);
  if (!in_time || !batch.settled() || batch.broken()) give_up(batch, lane, !in_time);
}

// Hands the halves to their mailboxes, all those of one mailbox together.
void LocalCommunicator::post(LocalBatch& batch, ir::Lane lane) {
  const std::span<PostedHalf> halves = batch.halves();
  for (std::size_t i = 0; i < halves.size(); ++i) {
    if (halves[i].chained) continue;
    PostedHalf* last = &halves[i];
    last->chained = true;
    for (std::size_t j = i + 1; j < halves.size(); ++j)
      if (halves[j].half.peer == last->half.peer && halves[j].half.send == last->half.send) {
        halves[j].chained = true;
        last->next = &halves[j];
        last = &halves[j];
      }
    mailbox(halves[i].half, lane).post(&halves[i], halves[i].half.send);
  }
}

// Takes back what nobody has met yet, so that no one touches the caller's buffers afterwards.
std::uint32_t LocalCommunicator::withdraw(LocalBatch& batch, ir::Lane lane) {
  std::uint32_t withdrawn = 0;
  for (PostedHalf& posted : batch.halves()) {
    posted.withdrawn = mailbox(posted.half, lane).withdraw(&posted);
    withdrawn += posted.withdrawn;
  }
  batch.wait_for_copies(withdrawn);
  return withdrawn;
}

// A batch that did not end well; it may still have been completed at the last moment.
void LocalCommunicator::give_up(LocalBatch& batch, ir::Lane lane, bool timed_out) {
  const std::uint32_t withdrawn = withdraw(batch, lane);
  if (batch.broken()) raise(batch.error(), lane);
  if (withdrawn == 0 && timed_out) return;
  std::string waiting;
  for (const PostedHalf& posted : batch.halves()) {
    if (!posted.withdrawn) continue;
    if (!waiting.empty()) waiting += "; ";
    waiting += text(posted.half) + " (" + state_->status(posted.half.peer, lane) + ")";
  }
  if (timed_out) raise("no answer for " + text(state_->options().timeout) + ": waiting to " + waiting, lane);
  raise("stopped because " + state_->failure() + (waiting.empty() ? "" : "; was waiting to " + waiting), lane);
}

void LocalCommunicator::collective(ir::Group group, const CollectiveCall& call, std::size_t channel) {
  LocalMembership& own = state_->membership(group, rank_);
  const Operation operation{.kind = call.kind, .group = group, .peer = call.root, .bytes = call.bytes};
  if (state_->failed().load())
    raise("stopped because " + state_->failure() + "; was about to start " + text(operation), lane_of(channel));
  InOperation mark(self_.operations[channel], operation);
  const auto outcome = own.meetings[channel]->run(own.member, call, state_->failed(), state_->options().timeout);
  if (outcome != GroupMeeting::Outcome::done) collective_failed(operation, channel, outcome);
}

void LocalCommunicator::collective_failed(const Operation& operation, std::size_t channel,
                                          GroupMeeting::Outcome outcome) {
  const LocalMembership& own = state_->membership(operation.group, rank_);
  const ir::Lane lane = lane_of(channel);
  const std::string group = std::string(ir::name(operation.group)) + " " + text(std::span<const int>(own.ranks));
  std::string missing;
  for (std::size_t member : own.meetings[channel]->missing(own.member)) {
    if (!missing.empty()) missing += "; ";
    missing += state_->status(own.ranks[member], lane);
  }
  switch (outcome) {
    case GroupMeeting::Outcome::done: return;
    case GroupMeeting::Outcome::disagree:
      raise("members of " + group + " disagree: " +
            own.meetings[channel]->disagreement(own.member), lane);
    case GroupMeeting::Outcome::timed_out:
      raise("no answer for " + text(state_->options().timeout) + " in " + text(operation) + ": waiting for " + missing,
            lane);
    case GroupMeeting::Outcome::failed:
      raise("stopped because " + state_->failure() + "; was in " + text(operation), lane);
    case GroupMeeting::Outcome::closed:
      // This rank may be the first that the others hear of: it has the whole story to tell.
      raise("no answer for " + text(state_->options().timeout) + " in " + text(operation) + ": a member of " + group +
                " gave up" + (missing.empty() ? "" : ", waiting for " + missing),
            lane);
  }
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_world(const Topology& topology, const CommOptions& options) {
  auto state = std::make_shared<LocalState>(topology, options);
  std::vector<std::unique_ptr<Communicator>> world;
  for (int rank = 0; rank < topology.size(); ++rank) world.push_back(std::make_unique<LocalCommunicator>(state, rank));
  return world;
}

}  // namespace fem::exec
