#include "fatal_rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "executor/error.hpp"

namespace fem::exec::test {
namespace {

using ir::Group;

// Ranks 0 and 1 exchange one half; the others wait for all, and learn of the failure there.
void one_message(Communicator& comm, std::int64_t send_tag, std::size_t sent, std::int64_t receive_tag,
                 std::size_t received) {
  std::vector<char> data(64);
  if (comm.rank() == 0) comm.exchange(std::vector<P2pHalf>{{true, 1, send_tag, data.data(), sent}});
  if (comm.rank() == 1) comm.exchange(std::vector<P2pHalf>{{false, 0, receive_tag, data.data(), received}});
  comm.barrier(Group::world);
}

void tags_differ(Communicator& comm) { one_message(comm, 41, 16, 42, 16); }
void sizes_differ(Communicator& comm) { one_message(comm, 41, 16, 41, 24); }

// The mismatch is found in the third half of a batch whose other halves meet.
void tags_differ_in_a_batch(Communicator& comm) {
  std::vector<char> data(64);
  if (comm.rank() < 2) {
    const bool send = comm.rank() == 0;
    std::vector<P2pHalf> halves;
    for (std::int64_t tag : {1, 2, send ? 3 : 4})
      halves.push_back({send, 1 - comm.rank(), tag, data.data() + 8 * tag, 8});
    comm.exchange(halves);
  }
  comm.barrier(Group::world);
}

// Of the rules in which time runs out.
constexpr CommOptions kHasty{std::chrono::milliseconds(500)};

[[noreturn]] void boom() { throw ExecutionError("the units broke", 1, 17, "Forward s0 m3"); }

void peer_fails_while_others_receive(Communicator& comm) {
  if (comm.rank() == 1) boom();
  int value = 0;
  comm.exchange(std::vector<P2pHalf>{{false, 1, 5, &value, sizeof value}});
}

void peer_fails_while_others_send(Communicator& comm) {
  if (comm.rank() == 1) boom();
  int value = 0;
  comm.exchange(std::vector<P2pHalf>{{true, 1, 5, &value, sizeof value}});
}

void peer_fails_while_others_gather(Communicator& comm) {
  if (comm.rank() == 1) boom();
  std::vector<int> values(static_cast<std::size_t>(comm.size()));
  comm.all_gather(Group::world, &values[static_cast<std::size_t>(comm.rank())], values.data(), sizeof(int));
}

// What a call was given is the caller's again once it has thrown: nothing that is still under way may arrive there.
void buffers_are_free_after_a_failure(Communicator& comm) {
  if (comm.rank() == 1) boom();
  constexpr std::size_t kBlock = 1000;
  std::vector<int> values(kBlock * static_cast<std::size_t>(comm.size()), 1);
  try {
    comm.all_gather(Group::world, values.data() + kBlock * static_cast<std::size_t>(comm.rank()), values.data(),
                    kBlock * sizeof(int));
  } catch (const ExecutionError&) {
    std::ranges::fill(values, 7);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < end) {
      try {
        comm.barrier(Group::world);  // looks for what has arrived
      } catch (const ExecutionError&) {
      }
    }
    if (std::ranges::count(values, 7) != static_cast<std::ptrdiff_t>(values.size())) std::abort();
    throw;
  }
}

void peer_fails_before_a_barrier(Communicator& comm) {
  if (comm.rank() == 1) boom();
  comm.barrier(Group::world);
}

// Nobody waits when it happens: the next call tells.
void calls_after_a_failure(Communicator& comm) {
  if (comm.rank() == 1) boom();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  int value = 0;
  comm.broadcast(Group::world, 0, &value, sizeof value);
}

// Rank 1 is busy elsewhere for longer than the others wait. It says where, and meets the failure afterwards.
void peer_never_sends(Communicator& comm) {
  const ProgressScope scope(comm.progress(), [](std::int64_t, std::uint32_t action) {
    return action == 4 ? "RecvForward s1 m3 from 1" : "Backward s0 m2";
  });
  comm.progress().enter(17, comm.rank() == 1 ? 9 : 4);
  if (comm.rank() == 1) {
    std::this_thread::sleep_for(2 * kHasty.timeout);
    comm.barrier(Group::world);
  }
  int value = 0;
  comm.exchange(std::vector<P2pHalf>{{false, 1, 5, &value, sizeof value}});
}

void member_never_comes(Communicator& comm) {
  if (comm.rank() == 1) std::this_thread::sleep_for(2 * kHasty.timeout);
  std::vector<float> values(100);
  comm.all_reduce_sum(Group::world, values);
}

// A receive loop over each other: the first thing that a wrong plan would do.
void everyone_receives_first(Communicator& comm) {
  int value = 0;
  comm.exchange(std::vector<P2pHalf>{{false, comm.rank() == 0 ? 1 : 0, 5, &value, sizeof value}});
}

const std::vector<FatalRule>& all_rules() {
  static const std::vector<FatalRule> rules{
      {"tags_differ", tags_differ,
       {{"tags do not match", "rank 0 sends tag 41 of 16 bytes", "rank 1 expects tag 42 of 16 bytes"}}},
      {"sizes_differ", sizes_differ,
       {{"sizes do not match", "rank 0 sends tag 41 of 16 bytes", "rank 1 expects tag 41 of 24 bytes"}}},
      {"tags_differ_in_a_batch", tags_differ_in_a_batch,
       {{"tags do not match", "rank 0 sends tag 3 of 8 bytes", "rank 1 expects tag 4 of 8 bytes"}}},
      {"peer_fails_while_others_receive", peer_fails_while_others_receive,
       {{"rank 1 failed: ", "step 17, Forward s0 m3: the units broke", "receive tag 5 of 4 bytes from rank 1"},
        {"the units broke"},
        {"rank 1 failed: ", "the units broke"}}},
      {"peer_fails_while_others_send", peer_fails_while_others_send,
       {{"rank 1 failed: ", "the units broke", "send tag 5 of 4 bytes to rank 1"},
        {"the units broke"},
        {"rank 1 failed: ", "the units broke"}}},
      {"peer_fails_while_others_gather", peer_fails_while_others_gather,
       {{"rank 1 failed: ", "the units broke", "all_gather over world with blocks of 4 bytes"},
        {"the units broke"},
        {"rank 1 failed: ", "the units broke"}}},
      {"buffers_are_free_after_a_failure", buffers_are_free_after_a_failure,
       {{"rank 1 failed: ", "the units broke"}, {"the units broke"}, {"rank 1 failed: ", "the units broke"}}},
      {"peer_fails_before_a_barrier", peer_fails_before_a_barrier,
       {{"rank 1 failed: ", "the units broke", "barrier over world"},
        {"the units broke"},
        {"rank 1 failed: ", "the units broke"}}},
      {"calls_after_a_failure", calls_after_a_failure,
       {{"stopped because rank 1 failed: ", "the units broke"},
        {"the units broke"},
        {"stopped because rank 1 failed: ", "the units broke"}}},
      {"peer_never_sends", peer_never_sends,
       {{"rank 0 (pp 0 dp 0), step 17, RecvForward s1 m3 from 1: ", "receive tag 5 of 4 bytes from rank 1"},
        {"rank 1 (", "step 17, Backward s0 m2: stopped because rank ", "no answer for 500 ms"},
        {"step 17, RecvForward s1 m3 from 1: "}},
       kHasty},
      {"member_never_comes", member_never_comes,
       {{"all_to_all over world"}, {"no answer for 500 ms in all_to_all over world"}, {"all_to_all over world"}},
       kHasty},
      {"everyone_receives_first", everyone_receives_first,
       {{"receive tag 5 of 4 bytes from rank 1"}, {"receive tag 5 of 4 bytes from rank 0"}}, kHasty},
  };
  return rules;
}

}  // namespace

std::span<const FatalRule> fatal_rules() { return all_rules(); }

void expect_error(const FatalRule& rule, int rank, const std::string& error) {
  const std::size_t row = std::min(static_cast<std::size_t>(rank), rule.expected.size() - 1);
  std::size_t at = 0;
  for (const char* part : rule.expected[row]) {
    at = error.find(part, at);
    ASSERT_NE(at, std::string::npos) << rule.name << ": the error of rank " << rank << " lacks '" << part << "':\n"
                                     << error;
  }
}

}  // namespace fem::exec::test
