#include "executor/comm/local_collective.hpp"

#include <cstring>
#include <utility>

namespace fem::exec {

GroupMeeting::GroupMeeting(std::vector<Signal*> signals)
    : signals_(std::move(signals)), slots_(new Slot[signals_.size()]), size_(signals_.size()) {}

GroupMeeting::Outcome GroupMeeting::run(std::size_t member, const CollectiveCall& call,
                                        const std::atomic<bool>& failed, std::chrono::milliseconds timeout) {
  Slot& own = slots_[member];
  own.call = call;
  const std::uint64_t round = own.round.load() + 1;
  own.round.store(round);
  const std::uint64_t target = round * size_;

  const std::uint64_t before = arrived_.fetch_add(1);
  if (before & kClosed) return Outcome::closed;
  if (before + 1 == target) {
    notify_others(member);
  } else {
    signals_[member]->wait(
        [&] {
          const std::uint64_t arrived = arrived_.load();
          return (arrived & kClosed) || arrived >= target || failed.load();
        },
        timeout);
    if (close(target)) {
      notify_others(member);
      return failed.load() ? Outcome::failed : Outcome::timed_out;
    }
    if (!complete(target)) return failed.load() ? Outcome::failed : Outcome::closed;
  }

  // From here on every member is inside and goes on to depart, so waiting for the others needs no time limit.
  Outcome outcome = Outcome::done;
  if (agree())
    copy(member);
  else
    outcome = Outcome::disagree;
  if (outcome == Outcome::disagree) {
    own.disagreement.clear();
    for (std::size_t i = 0; i < size_; ++i)
      own.disagreement += (i ? " / " : "") + std::string(name(slots_[i].call.kind)) + " " +
                          std::to_string(slots_[i].call.bytes) +
                          (slots_[i].call.kind == OperationKind::broadcast
                               ? " from " + std::to_string(slots_[i].call.root) : std::string());
  }
  depart(member, target);
  return outcome;
}

bool GroupMeeting::complete(std::uint64_t target) const { return (arrived_.load() & ~kClosed) >= target; }

// True: the meeting was still open and short of members, and this call closed it.
bool GroupMeeting::close(std::uint64_t target) {
  std::uint64_t arrived = arrived_.load();
  while (!(arrived & kClosed) && arrived < target)
    if (arrived_.compare_exchange_weak(arrived, arrived | kClosed)) return true;
  return false;
}

bool GroupMeeting::agree() const {
  const CollectiveCall& first = slots_[0].call;
  for (std::size_t i = 1; i < size_; ++i) {
    const CollectiveCall& call = slots_[i].call;
    if (call.kind != first.kind || call.bytes != first.bytes || call.root != first.root) return false;
  }
  return true;
}

void GroupMeeting::copy(std::size_t member) const {
  const CollectiveCall& own = slots_[member].call;
  const std::size_t bytes = own.bytes;
  if (bytes == 0) return;
  switch (own.kind) {
    case OperationKind::all_gather:
      for (std::size_t i = 0; i < size_; ++i) {
        void* to = static_cast<char*>(own.recv) + i * bytes;
        if (to != slots_[i].call.send) std::memcpy(to, slots_[i].call.send, bytes);
      }
      break;
    case OperationKind::all_to_all:
      for (std::size_t i = 0; i < size_; ++i)
        std::memcpy(static_cast<char*>(own.recv) + i * bytes,
                    static_cast<const char*>(slots_[i].call.send) + member * bytes, bytes);
      break;
    case OperationKind::broadcast:
      if (member != static_cast<std::size_t>(own.root))
        std::memcpy(own.recv, slots_[static_cast<std::size_t>(own.root)].call.send, bytes);
      break;
    case OperationKind::none:
    case OperationKind::exchange:
    case OperationKind::barrier:
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter: break;
  }
}

void GroupMeeting::depart(std::size_t member, std::uint64_t target) {
  if (departed_.fetch_add(1) + 1 == target) {
    notify_others(member);
    return;
  }
  while (!signals_[member]->wait([&] { return departed_.load() >= target; }, std::chrono::seconds(60))) {
  }
}

void GroupMeeting::notify_others(std::size_t member) {
  for (std::size_t i = 0; i < size_; ++i)
    if (i != member) signals_[i]->notify();
}

std::vector<std::size_t> GroupMeeting::missing(std::size_t member) const {
  const std::uint64_t round = slots_[member].round.load();
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < size_; ++i)
    if (slots_[i].round.load() < round) members.push_back(i);
  return members;
}

std::string GroupMeeting::disagreement(std::size_t member) const { return slots_[member].disagreement; }

}  // namespace fem::exec
