// What a rank is doing inside the communicator right now, for the messages of those that wait for it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/action.hpp"

namespace fem::exec {

enum class OperationKind : std::uint8_t {
  none,
  exchange,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  all_reduce,      // these two where a backend has sums of its own
  reduce_scatter,
};
std::string_view name(OperationKind kind);

struct Operation {
  OperationKind kind = OperationKind::none;
  ir::Group group = ir::Group::none;  // of a collective
  bool send = false;                  // of an exchange: its first half
  int peer = -1;                      // of an exchange: its first peer; of a broadcast: the root's place in the group
  std::int64_t tag = 0;               // of an exchange
  std::uint64_t bytes = 0;
  std::uint32_t halves = 0;           // of an exchange
};

// "all_gather over dp with blocks of 512 bytes", "exchange of 2 halves, first: send tag 3, 16384 bytes to rank 1"
std::string text(const Operation& operation);

// An Operation that other threads may read while its rank goes on. Fields of two operations may mix: it only makes
// text.
class OperationRecord {
 public:
  void enter(const Operation& operation) noexcept {
    group_.store(operation.group, std::memory_order_relaxed);
    send_.store(operation.send, std::memory_order_relaxed);
    peer_.store(operation.peer, std::memory_order_relaxed);
    tag_.store(operation.tag, std::memory_order_relaxed);
    bytes_.store(operation.bytes, std::memory_order_relaxed);
    halves_.store(operation.halves, std::memory_order_relaxed);
    kind_.store(operation.kind, std::memory_order_relaxed);
  }
  void leave() noexcept { kind_.store(OperationKind::none, std::memory_order_relaxed); }
  Operation load() const noexcept;

 private:
  std::atomic<OperationKind> kind_{OperationKind::none};
  std::atomic<ir::Group> group_{ir::Group::none};
  std::atomic<bool> send_{false};
  std::atomic<int> peer_{-1};
  std::atomic<std::int64_t> tag_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint32_t> halves_{0};
};

// A lane's collectives and exchanges, and barriers, which have a channel of their own.
inline constexpr std::size_t kChannels = ir::kLanes + 1;
inline constexpr std::size_t kBarrierChannel = ir::kLanes;
inline std::size_t channel_of(ir::Lane lane) { return static_cast<std::size_t>(lane); }
std::string_view channel_name(std::size_t channel);  // the lane's name, or "barrier"
using OperationRecords = std::array<OperationRecord, kChannels>;

// "a barrier over world (barrier), all_gather ... (lane collective)", or "nothing in the communicator".
std::string text(const OperationRecords& records);

}  // namespace fem::exec
