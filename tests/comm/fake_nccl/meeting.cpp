#include "tests/comm/fake_nccl/meeting.hpp"

#include <cstring>

#include "tests/comm/fake_nccl/state.hpp"

namespace fake {
namespace {

const char* name(Kind kind) {
  switch (kind) {
    case Kind::send: return "send";
    case Kind::receive: return "receive";
    case Kind::all_gather: return "all_gather";
    case Kind::all_reduce: return "all_reduce";
    case Kind::reduce_scatter: return "reduce_scatter";
    case Kind::broadcast: return "broadcast";
  }
  return "?";
}

bool agree(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.bytes == b.bytes && a.type == b.type && a.peer == b.peer;
}

}  // namespace

std::string text(const Operation& operation) {
  return std::string(name(operation.kind)) + " of " + std::to_string(operation.bytes) + " bytes of type " +
         std::to_string(operation.type) + (operation.kind == Kind::broadcast ? " from " : "") +
         (operation.kind == Kind::broadcast ? std::to_string(operation.peer) : std::string());
}

void Meeting::broken(const std::string& rule) {
  violated("communicator " + std::to_string(number_) + ": " + rule);
  broken_ = true;
  changed_.notify_all();
}

void Meeting::stop(bool& member) {
  std::lock_guard lock(mutex_);
  member = true;
  changed_.notify_all();
}

Meeting::Collective& Meeting::collective(std::size_t index) {
  while (collectives_.size() <= index)
    collectives_.push_back({std::vector<Part>(size(members_)), std::vector<bool>(size(members_)), 0, false});
  return collectives_[index];
}

Meeting::Ticket Meeting::issue(int member, const Operation& operation) {
  std::lock_guard lock(mutex_);
  if (operation.kind == Kind::send || operation.kind == Kind::receive) {
    const bool send = operation.kind == Kind::send;
    Pair& pair = pairs_[send ? std::pair(member, operation.peer) : std::pair(operation.peer, member)];
    (send ? pair.sends : pair.receives).push_back(operation);
    compare(pair);
    return {operation, 0};
  }
  const std::size_t index = issued_[size(member)]++;
  Collective& all = collective(index);
  all.parts[size(member)].operation = operation;
  all.known[size(member)] = true;
  for (std::size_t other = 0; other < size(members_); ++other)
    if (all.known[other] && !agree(all.parts[other].operation, operation)) {
      broken("collective " + std::to_string(index) + " is " + text(operation) + " on member " + std::to_string(member) +
             ", " + text(all.parts[other].operation) + " on member " + std::to_string(other));
      break;
    }
  return {operation, index};
}

void Meeting::compare(Pair& pair) {
  while (!pair.sends.empty() && !pair.receives.empty()) {
    const Operation &send = pair.sends.front(), &receive = pair.receives.front();
    if (send.bytes != receive.bytes || send.type != receive.type)
      broken(text(send) + " from member " + std::to_string(receive.peer) + " meets " + text(receive) + " on member " +
             std::to_string(send.peer));
    pair.sends.pop_front();
    pair.receives.pop_front();
  }
}

// The stream of a member has come to an operation of its own.
void Meeting::come(int member, const Ticket& ticket, bool& done) {
  const Operation& own = ticket.operation;
  if (own.kind == Kind::send || own.kind == Kind::receive) {
    const bool send = own.kind == Kind::send;
    Pair& pair = pairs_[send ? std::pair(member, own.peer) : std::pair(own.peer, member)];
    (send ? pair.waiting_sends : pair.waiting_receives).push_back({own, &done});
    while (!pair.waiting_sends.empty() && !pair.waiting_receives.empty()) {
      const Half from = pair.waiting_sends.front(), to = pair.waiting_receives.front();
      std::memcpy(to.operation.to, from.operation.from, to.operation.bytes);
      *from.done = *to.done = true;
      pair.waiting_sends.pop_front();
      pair.waiting_receives.pop_front();
    }
  } else {
    Collective& all = collectives_[ticket.collective];
    all.parts[size(member)].here = true;
    if (++all.here == members_) {
      move(all);
      all.done = true;
    }
  }
}

void Meeting::run(int member, const std::vector<Ticket>& group, const bool& stop) {
  std::unique_lock lock(mutex_);
  if (stop || broken_) return;
  std::deque<bool> done(group.size());
  for (std::size_t i = 0; i < group.size(); ++i) come(member, group[i], done[i]);
  changed_.notify_all();
  const auto all_done = [&] {
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Kind kind = group[i].operation.kind;
      const bool half = kind == Kind::send || kind == Kind::receive;
      if (!(half ? done[i] : collectives_[group[i].collective].done)) return false;
    }
    return true;
  };
  changed_.wait(lock, [&] { return stop || broken_ || all_done(); });
  if (all_done()) return;
  // Nobody may write into what this stream leaves behind.
  for (auto& [ranks, pair] : pairs_)
    for (auto* waiting : {&pair.waiting_sends, &pair.waiting_receives})
      std::erase_if(*waiting, [&](const Half& half) {
        for (const bool& mine : done)
          if (half.done == &mine) return true;
        return false;
      });
}

// All parts are here, so every buffer is as its stream left it.
void Meeting::move(Collective& all) const {
  const Operation& first = all.parts[0].operation;
  const std::size_t bytes = first.bytes;
  switch (first.kind) {
    case Kind::send:
    case Kind::receive: return;
    case Kind::broadcast:
      for (const Part& part : all.parts)
        std::memmove(part.operation.to, all.parts[size(first.peer)].operation.from, bytes);
      return;
    case Kind::all_gather:
      for (const Part& to : all.parts)
        for (std::size_t i = 0; i < all.parts.size(); ++i)
          std::memmove(static_cast<char*>(to.operation.to) + i * bytes, all.parts[i].operation.from, bytes);
      return;
    case Kind::all_reduce:
    case Kind::reduce_scatter: break;
  }
  // Sums, from the last member to the first: NCCL promises no order, least of all the group's.
  const std::size_t count = bytes / sizeof(float);
  const std::size_t blocks = first.kind == Kind::all_reduce ? 1 : all.parts.size();
  std::vector<float> sums(blocks * count);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = static_cast<const float*>(all.parts.back().operation.from)[i];
    for (std::size_t member = all.parts.size() - 1; member-- > 0;)
      sums[i] += static_cast<const float*>(all.parts[member].operation.from)[i];
  }
  for (std::size_t i = 0; i < all.parts.size(); ++i)
    std::memcpy(all.parts[i].operation.to, sums.data() + (blocks == 1 ? 0 : i * count), bytes);
}

}  // namespace fake
