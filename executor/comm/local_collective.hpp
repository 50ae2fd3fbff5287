// Where the threads of one group meet for a collective: they read each other's buffers, nothing lies between.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/comm/operation.hpp"
#include "executor/comm/signal.hpp"

namespace fem::exec {

// One member's part in a collective.
struct CollectiveCall {
  OperationKind kind = OperationKind::none;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t bytes = 0;  // of a block
  int root = 0;           // member, of a broadcast
};

// Members arrive, all copy what they need, all leave: two meetings, so no buffer is read after its owner went on.
// One group, one lane. A member that gives up before all have arrived closes the meeting for good.
class GroupMeeting {
 public:
  enum class Outcome { done, disagree, timed_out, failed, closed };

  // `signals` are the members' own, in group order.
  explicit GroupMeeting(std::vector<Signal*> signals);

  // Blocks until all members have called. `failed` is set when the world failed. The caller's buffers are free to
  // change and to go away after it returns, whatever the outcome.
  Outcome run(std::size_t member, const CollectiveCall& call, const std::atomic<bool>& failed,
              std::chrono::milliseconds timeout);

  // Members that have not arrived where `member` has: whom it waits for. For messages.
  std::vector<std::size_t> missing(std::size_t member) const;
  // "all_gather 512 / broadcast 4": what each member called, after `disagree`, before anyone calls again.
  std::string disagreement(std::size_t member) const;

 private:
  struct alignas(64) Slot {
    CollectiveCall call;
    std::atomic<std::uint64_t> round{0};
    std::string disagreement;  // touched by its own member alone
  };
  static constexpr std::uint64_t kClosed = std::uint64_t{1} << 63;

  bool complete(std::uint64_t target) const;
  bool close(std::uint64_t target);
  bool agree() const;
  void copy(std::size_t member) const;
  void depart(std::size_t member, std::uint64_t target);
  void notify_others(std::size_t member);

  std::vector<Signal*> signals_;
  std::unique_ptr<Slot[]> slots_;
  std::size_t size_;
  alignas(64) std::atomic<std::uint64_t> arrived_{0};  // calls so far of all members; kClosed
  alignas(64) std::atomic<std::uint64_t> departed_{0};
};

}  // namespace fem::exec
