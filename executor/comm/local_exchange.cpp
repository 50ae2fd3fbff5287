#include "executor/comm/local_exchange.hpp"

#include <cstring>
#include <thread>

namespace fem::exec {
namespace {

std::string side(const PostedHalf& posted) {
  return "rank " + std::to_string(posted.batch->rank()) + (posted.half.send ? " sends tag " : " expects tag ") +
         std::to_string(posted.half.tag) + " of " + std::to_string(posted.half.bytes) + " bytes";
}

void break_both(const PostedHalf& one, const PostedHalf& other, const char* what) {
  const PostedHalf& send = one.half.send ? one : other;
  const PostedHalf& receive = one.half.send ? other : one;
  const std::string error = std::string(what) + " do not match: " + side(send) + ", " + side(receive);
  one.batch->break_with(error);
  other.batch->break_with(error);
}

void deliver(const PostedHalf& one, const PostedHalf& other) {
  const P2pHalf& send = one.half.send ? one.half : other.half;
  const P2pHalf& receive = one.half.send ? other.half : one.half;
  if (send.bytes != receive.bytes)
    break_both(one, other, "sizes");
  else if (send.bytes != 0)
    std::memcpy(receive.data, send.data, send.bytes);
  other.batch->complete_one();
  one.batch->complete_one();
}

}  // namespace

void LocalBatch::start(std::span<const P2pHalf> halves) {
  if (halves_.size() < halves.size()) halves_.resize(halves.size());
  count_ = halves.size();
  for (std::size_t i = 0; i < count_; ++i) halves_[i] = {.half = halves[i], .batch = this};
  claimed_.store(false);
  broken_.store(false);
  remaining_.store(static_cast<std::uint32_t>(count_));
}

void LocalBatch::break_with(const std::string& error) {
  if (!claimed_.exchange(true)) {
    error_ = error;
    broken_.store(true);
  }
  signal_->notify();
}

void LocalBatch::wait_for_copies(std::uint32_t withdrawn) const {
  while (remaining_.load() != withdrawn) std::this_thread::yield();
}

void Mailbox::Queue::append(PostedHalf* chain) {
  PostedHalf** end = &head;
  while (*end) end = &(*end)->next;
  *end = chain;
}

bool Mailbox::Queue::remove(PostedHalf* half) {
  for (PostedHalf** at = &head; *at; at = &(*at)->next)
    if (*at == half) {
      *at = half->next;
      return true;
    }
  return false;
}

PostedHalf* Mailbox::Queue::take(std::int64_t tag) {
  for (PostedHalf** at = &head; *at; at = &(*at)->next)
    if ((*at)->half.tag == tag) {
      PostedHalf* found = *at;
      *at = found->next;
      return found;
    }
  return nullptr;
}

// Takes the pairs out of both queues; gives the list of this side's halves that have a partner.
PostedHalf* Mailbox::match(Queue& own, Queue& other) {
  PostedHalf* matched = nullptr;
  PostedHalf** end = &matched;
  for (PostedHalf** at = &own.head; *at;) {
    PostedHalf* half = *at;
    PostedHalf* partner = other.take(half->half.tag);
    if (!partner) {
      at = &half->next;
      continue;
    }
    *at = half->next;
    half->partner = partner;
    half->next = nullptr;
    *end = half;
    end = &half->next;
  }
  return matched;
}

void Mailbox::post(PostedHalf* chain, bool send) {
  PostedHalf* matched;
  {
    std::lock_guard lock(mutex_);
    Queue& own = send ? sends_ : receives_;
    Queue& other = send ? receives_ : sends_;
    own.append(chain);
    matched = match(own, other);
    if (own.head && other.head) break_both(*own.head, *other.head, "tags");
  }
  while (matched) {
    PostedHalf* next = matched->next;  // completing the last one lets its owner reuse the links
    deliver(*matched, *matched->partner);
    matched = next;
  }
}

bool Mailbox::withdraw(PostedHalf* half) {
  std::lock_guard lock(mutex_);
  return half->half.send ? sends_.remove(half) : receives_.remove(half);
}

}  // namespace fem::exec
