// The rules on the local backend, and what holds there alone: full knowledge of what peers are doing, checked
// collectives.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "executor/comm/local_world.hpp"
#include "executor/error.hpp"
#include "fatal_rules.hpp"
#include "rules.hpp"
#include "world_for_test.hpp"

namespace fem::exec::test {
namespace {

using ir::Group;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr CommOptions kPatient{std::chrono::milliseconds(60'000)};

class LocalRules : public testing::TestWithParam<std::tuple<Mesh, Rule>> {};

TEST_P(LocalRules, Hold) {
  const auto& [mesh, rule] = GetParam();
  EXPECT_THAT(run_local(mesh, kPatient, rule.run), Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(
    AllMeshes, LocalRules,
    testing::Combine(testing::Values(Mesh{}, Mesh{.pp = 2}, Mesh{.dp = 3}, Mesh{.pp = 3, .dp = 2},
                                     Mesh{.pp = 2, .dp = 2, .cp = 2, .tp = 2, .ep = 2}),
                     testing::ValuesIn(rules().begin(), rules().end())),
    [](const auto& info) { return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name; });

class LocalFatalRules : public testing::TestWithParam<std::tuple<Mesh, FatalRule>> {};

TEST_P(LocalFatalRules, EndEveryRank) {
  const auto& [mesh, rule] = GetParam();
  const std::vector<std::string> errors = run_local(mesh, rule.options, rule.run);
  for (int rank = 0; rank < mesh.size(); ++rank) expect_error(rule, rank, errors[static_cast<std::size_t>(rank)]);
}

INSTANTIATE_TEST_SUITE_P(
    TwoAndFour, LocalFatalRules,
    testing::Combine(testing::Values(Mesh{.pp = 2}, Mesh{.pp = 2, .dp = 2}),
                     testing::ValuesIn(fatal_rules().begin(), fatal_rules().end())),
    [](const auto& info) { return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name; });

TEST(LocalWorld, BarrierWaitsForAll) {
  std::atomic<int> before{0};
  const auto errors = run_local({.pp = 2, .dp = 2}, kPatient, [&](Communicator& comm) {
    for (int round = 1; round <= 50; ++round) {
      ++before;
      comm.barrier(Group::world);
      EXPECT_GE(before.load(), 4 * round);
      comm.barrier(Group::world);
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(LocalWorld, ErrorsCarryStepAndAction) {
  const auto errors = run_local({.pp = 2}, kPatient, [](Communicator& comm) {
    const ProgressScope scope(comm.progress(), [](std::int64_t step, std::uint32_t action) {
      return "action " + std::to_string(action) + " of step " + std::to_string(step);
    });
    comm.progress().enter(6, static_cast<std::uint32_t>(70 + comm.rank()));
    int value = 0;
    comm.exchange(std::vector<P2pHalf>{{comm.rank() == 1, 1 - comm.rank(), comm.rank(), &value, sizeof value}});
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 0 (pp 0 dp 0), step 6, action 70 of step 6: tags do not match"));
  EXPECT_THAT(errors[1], HasSubstr("rank 1 (pp 1 dp 0), step 6, action 71 of step 6: tags do not match"));
}

TEST(LocalWorld, TimeoutNamesStepActionAndOperationOfThePeer) {
  const auto errors = run_local({.pp = 3}, {std::chrono::milliseconds(400)}, [](Communicator& comm) {
    const ProgressScope scope(comm.progress(), [](std::int64_t, std::uint32_t action) {
      return action == 1 ? "SendForward s1 m0 to 2" : "RecvForward s1 m0 from 0";
    });
    int value = 0;
    // A cycle: 0 waits for 1, 1 waits for 2, 2 waits for 0.
    const int peer = (comm.rank() + 1) % 3;
    comm.progress().enter(3, comm.rank() == 1 ? 1 : 2);
    comm.exchange(std::vector<P2pHalf>{{comm.rank() == 1, peer, comm.rank() + 10, &value, sizeof value}});
  });
  // One of the three is first to give up; its message describes the next one in the cycle, the others name it.
  int first = -1;
  for (int rank = 0; rank < 3; ++rank)
    if (errors[static_cast<std::size_t>(rank)].find(": no answer for 400 ms") != std::string::npos &&
        errors[static_cast<std::size_t>(rank)].find("stopped") == std::string::npos)
      first = rank;
  ASSERT_GE(first, 0);
  const std::string& error = errors[static_cast<std::size_t>(first)];
  const int peer = (first + 1) % 3;
  EXPECT_THAT(error, HasSubstr("(rank " + std::to_string(peer) + " is at step 3, " +
                               (peer == 1 ? "SendForward s1 m0 to 2" : "RecvForward s1 m0 from 0") + ", in exchange " +
                               (peer == 1 ? "send" : "receive") + " tag " + std::to_string(peer + 10) + ", 4 bytes " +
                               (peer == 1 ? "to" : "from") + " rank " + std::to_string((peer + 1) % 3)));
}

TEST(LocalWorld, TimeoutOfACollectiveNamesTheMissing) {
  const auto errors = run_local({.dp = 4}, {std::chrono::milliseconds(300)}, [](Communicator& comm) {
    if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(900));
    comm.barrier(Group::dp);
  });
  int named = 0;
  for (int rank : {0, 1, 3})
    if (errors[static_cast<std::size_t>(rank)].find("waiting for rank 2 is not inside a step, doing nothing in the "
                                                    "communicator") != std::string::npos)
      ++named;
  EXPECT_GE(named, 1) << errors[0];
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("barrier over dp"));
}

TEST(LocalWorld, CollectivesMustAgree) {
  const auto errors = run_local({.dp = 3}, kPatient, [](Communicator& comm) {
    std::vector<char> data(64);
    comm.all_gather(Group::dp, data.data(), data.data() + 32, comm.rank() == 2 ? 8 : 4);
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("members of dp {0, 1, 2} disagree: all_gather 4 / all_gather 4 / all_gather 8"));
  const auto roots = run_local({.dp = 2}, kPatient, [](Communicator& comm) {
    int value = 0;
    comm.broadcast(Group::dp, comm.rank(), &value, sizeof value);
  });
  for (const std::string& error : roots)
    EXPECT_THAT(error, HasSubstr("disagree: broadcast 4 from 0 / broadcast 4 from 1"));
}

TEST(LocalWorld, TheFirstFailureIsKept) {
  const auto world = make_local_world(Topology(settings({.pp = 2})));
  world[0]->fail("first");
  world[1]->fail("second");
  try {
    world[1]->barrier(Group::world);
    FAIL() << "a failed world must refuse calls";
  } catch (const ExecutionError& error) {
    EXPECT_EQ(error.message(), "stopped because rank 0 failed: first; was about to start barrier over world");
    EXPECT_EQ(error.rank(), 1);
  }
}

// A rank that gives up takes its buffers with it: a later peer must not write there.
TEST(LocalWorld, NobodyTouchesTheBuffersOfARankThatGaveUp) {
  std::atomic<bool> gave_up{false};
  std::vector<int> buffer(4, 5);
  const auto errors = run_local({.pp = 2}, {std::chrono::milliseconds(200)}, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      EXPECT_THROW(comm.exchange(std::vector<P2pHalf>{{false, 1, 1, buffer.data(), 16}}), ExecutionError);
      EXPECT_THROW(comm.broadcast(Group::world, 1, buffer.data(), 16), ExecutionError);
      gave_up = true;
      return;
    }
    while (!gave_up.load()) std::this_thread::yield();
    std::vector<int> sent(4, 9);
    EXPECT_THROW(comm.exchange(std::vector<P2pHalf>{{true, 0, 1, sent.data(), 16}}), ExecutionError);
    EXPECT_THROW(comm.broadcast(Group::world, 1, sent.data(), 16), ExecutionError);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(buffer, Each(5));
}

// After a timeout without a failure, point-to-point goes on: the batch that gave up left nothing behind.
TEST(LocalWorld, AnExchangeCanFollowATimeout) {
  std::atomic<bool> gave_up{false};
  const auto errors = run_local({.pp = 2}, {std::chrono::milliseconds(200)}, [&](Communicator& comm) {
    int value = comm.rank() == 0 ? 0 : 9;
    if (comm.rank() == 0) {
      EXPECT_THROW(comm.exchange(std::vector<P2pHalf>{{false, 1, 1, &value, sizeof value}}), ExecutionError);
      gave_up = true;
    }
    while (!gave_up.load()) std::this_thread::yield();
    comm.exchange(std::vector<P2pHalf>{{comm.rank() == 1, 1 - comm.rank(), 2, &value, sizeof value}});
    EXPECT_EQ(value, 9);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace fem::exec::test
