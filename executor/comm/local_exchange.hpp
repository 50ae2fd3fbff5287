// Where the halves of two threads meet: no buffer between them, one copy by whoever comes second.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "executor/comm/signal.hpp"

namespace fem::exec {

class LocalBatch;

// A half that waits in a mailbox, as a link of an intrusive list.
struct PostedHalf {
  P2pHalf half;
  LocalBatch* batch = nullptr;
  PostedHalf* next = nullptr;
  PostedHalf* partner = nullptr;  // its other side, once they have met
  bool chained = false;           // handed to a mailbox already
  bool withdrawn = false;         // taken back unmet, after a failure
};

// The halves that one rank has under way on one lane. Other ranks complete or break it.
class LocalBatch {
 public:
  void attach(int rank, Signal* signal) {
    rank_ = rank;
    signal_ = signal;
  }
  // Only while nothing of the batch is posted.
  void start(std::span<const P2pHalf> halves);

  int rank() const { return rank_; }
  std::span<PostedHalf> halves() { return {halves_.data(), count_}; }

  bool settled() const { return remaining_.load() == 0 || broken_.load(); }
  bool broken() const { return broken_.load(); }
  const std::string& error() const { return error_; }  // after broken()

  void complete_one() {
    if (remaining_.fetch_sub(1) == 1) signal_->notify();
  }
  void break_with(const std::string& error);  // the first error stays
  // After the unmet halves were withdrawn: waits until those that others still copy are done.
  void wait_for_copies(std::uint32_t withdrawn) const;

 private:
  int rank_ = -1;
  Signal* signal_ = nullptr;
  std::vector<PostedHalf> halves_;  // grows to the largest batch and stays
  std::size_t count_ = 0;
  std::atomic<std::uint32_t> remaining_{0};
  std::atomic<bool> claimed_{false}, broken_{false};
  std::string error_;
};

// What one rank sends another on one lane. A batch's halves for a mailbox come in one call, so when both sides have
// posted and something is left over on both, no later call can match it: that is a mismatch, and both batches break.
class alignas(64) Mailbox {
 public:
  // A chain of halves of one batch, all sends or all receives. Copies and completes those whose other side is there.
  void post(PostedHalf* chain, bool send);
  // False: it has met its other side already.
  bool withdraw(PostedHalf* half);

 private:
  struct Queue {
    PostedHalf* head = nullptr;
    void append(PostedHalf* chain);
    bool remove(PostedHalf* half);
    PostedHalf* take(std::int64_t tag);  // the first of that tag, or nullptr
  };
  PostedHalf* match(Queue& own, Queue& other);

  std::mutex mutex_;
  Queue sends_, receives_;
};

}  // namespace fem::exec
