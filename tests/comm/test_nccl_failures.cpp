// What the NCCL communicator's host code does when NCCL, CUDA or a peer fails.
#include <gmock/gmock.h>
#include <nccl.h>

#include <atomic>
#include <thread>

#include "executor/error.hpp"
#include "nccl_world_for_test.hpp"
#include "tests/comm/fake_nccl/control.hpp"

namespace fem::exec::test {
namespace {

using ir::Group;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr CommOptions kPatient{std::chrono::milliseconds(60'000)};
constexpr CommOptions kHasty{std::chrono::milliseconds(2'000)};  // it bounds the rendezvous too

int count(int device, const std::string& name) {
  int count = 0;
  for (const fake::Call& call : fake::calls(device)) count += call.name == name;
  return count;
}

// Says where the rank stands: at step 17, in an action with a name.
class Standing {
 public:
  explicit Standing(Communicator& comm)
      : scope_(comm.progress(), [](std::int64_t, std::uint32_t action) { return "action " + std::to_string(action); }) {
    comm.progress().enter(17, static_cast<std::uint32_t>(40 + comm.rank()));
  }

 private:
  ProgressScope scope_;
};

// Waits in barriers until it is told of the failure. It always is: one barrier never ends otherwise.
void wait_for_the_end(Communicator& comm) {
  for (;;) comm.barrier(Group::world);
}

// Memory outlives the communicators: a call that fails leaves others in their streams.
struct Buffers {
  std::vector<float> values = std::vector<float>(4), received = std::vector<float>(4);
};

void one_of_each(Communicator& comm, Buffers& buffers) {
  auto& [values, received] = buffers;
  const std::size_t bytes = 2 * sizeof(float);
  const P2pHalf half{comm.rank() == 0, 1 - comm.rank(), 1, values.data(), bytes};
  comm.exchange({&half, 1});
  comm.all_gather(Group::world, values.data(), values.data(), bytes);
  comm.broadcast(Group::world, 0, values.data(), bytes);
  comm.reduce_scatter_sum(Group::world, values);
  comm.all_reduce_sum(Group::world, values);
  comm.all_to_all(Group::world, values.data(), received.data(), bytes);
}

class FailingCall : public testing::TestWithParam<const char*> {};

// The rank whose call fails says which, where it stood and what NCCL said; the other one hears of it and stops.
TEST_P(FailingCall, EndsTheWorldWithRankStepAndAction) {
  const std::string name = GetParam();
  Buffers buffers[2];
  const auto errors = run_nccl({.dp = 2}, kPatient, [&](Communicator& comm) {
    const Standing here(comm);
    comm.barrier(Group::world);
    if (comm.rank() == 1) fake::inject(1, name, name.starts_with("cuda") ? 2 : ncclSystemError);
    one_of_each(comm, buffers[comm.rank()]);
    wait_for_the_end(comm);
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1 (pp 0 dp 1), step 17, action 41: " + name + ": "),
                               HasSubstr(name.starts_with("cuda") ? "out of memory" : "unhandled system error")));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 0 (pp 0 dp 0), step 17, action 40: stopped because of a failure: "),
                               HasSubstr("rank 1 (pp 0 dp 1), step 17, action 41: " + name)));
  EXPECT_EQ(count(1, "ncclGroupStart"), count(1, "ncclGroupEnd") + (name == "ncclGroupStart"));
}

INSTANTIATE_TEST_SUITE_P(All, FailingCall,
                         testing::Values("ncclGroupStart", "ncclGroupEnd", "ncclRecv", "ncclAllGather",
                                         "ncclBroadcast", "ncclReduceScatter", "ncclAllReduce", "cudaEventRecord"),
                         [](const auto& info) { return std::string(info.param); });

// NCCL tells of a lost peer only when asked.
TEST(NcclFailures, AnAsynchronousErrorEndsTheWorld) {
  const auto errors = run_nccl({.dp = 3}, kPatient, [](Communicator& comm) {
    comm.barrier(Group::world);
    if (comm.rank() == 1) fake::set_async_error(1, ncclRemoteError);
    wait_for_the_end(comm);
  });
  for (int rank : {0, 1, 2})
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("rank " + std::to_string(rank) + " (pp 0 dp " + std::to_string(rank) + ")"),
                      HasSubstr("stopped because of a failure: "),
                      HasSubstr("rank 1 (pp 0 dp 1): NCCL: remote process exited")));
}

// The watchdog names the oldest operation that has no answer, with the step and the action in which it was issued.
TEST(NcclFailures, APeerThatNeverComesIsATimeout) {
  std::atomic<bool> over{false};
  int value = 0;
  const auto errors = run_nccl({.pp = 2}, kHasty, [&](Communicator& comm) {
    const Standing here(comm);
    if (comm.rank() == 1) {
      while (!over.load()) std::this_thread::yield();
      return wait_for_the_end(comm);
    }
    const P2pHalf half{false, 1, 5, &value, sizeof value};
    comm.exchange({&half, 1});
    comm.progress().enter(18, 99);
    try {
      wait_for_the_end(comm);
    } catch (const ExecutionError&) {
      over.store(true);
      throw;
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("step 18, action 99: stopped because of a failure: "),
                               HasSubstr("step 17, action 40: rank 0 (pp 0 dp 0): no answer for 2 s in exchange"),
                               HasSubstr("receive tag 5, 4 bytes from rank 1")));
  EXPECT_THAT(errors[1], HasSubstr("no answer for 2 s"));
}

TEST(NcclFailures, APeersOwnErrorReachesAll) {
  const auto errors = run_nccl({.pp = 2, .dp = 2}, kPatient, [](Communicator& comm) {
    if (comm.rank() == 2) throw ExecutionError("the units broke", 2, 17, "Forward s0 m3");
    wait_for_the_end(comm);
  });
  EXPECT_THAT(errors[2], HasSubstr("the units broke"));
  for (std::size_t rank : {0u, 1u, 3u})
    EXPECT_THAT(errors[rank], HasSubstr("stopped because of a failure: rank 2, step 17, Forward s0 m3: the units"));
}

// What was made before the call that fails is given back: run_nccl looks for leaks.
TEST(NcclFailures, CreationThatFailsLeavesNothing) {
  for (const char* name : {"ncclCommInitRank", "ncclCommSplit", "cudaMalloc", "cudaStreamCreateWithFlags"}) {
    const bool cuda = std::string(name).starts_with("cuda");
    const int skip = std::string(name) == "ncclCommSplit" ? 5 : 0;
    const auto errors = run_nccl(
        {.dp = 2}, kPatient,
        [&] {
          for (int device : {0, 1}) fake::inject(device, name, cuda ? 2 : ncclSystemError, skip);
        },
        [](Communicator&) { ADD_FAILURE() << "was made"; });
    EXPECT_THAT(errors[0], HasSubstr(std::string(name) + ": "));
    // Rank 0 may be gone, and the store with it, before rank 1 has come as far.
    EXPECT_THAT(errors[1], AnyOf(HasSubstr(std::string(name) + ": "), HasSubstr("rank 1: ")));
  }
}

// Aborted communicators are not destroyed too, and no call comes to them afterwards.
TEST(NcclFailures, AbortsEachCommunicatorOnce) {
  const auto errors = run_nccl({.dp = 2}, kPatient, [](Communicator& comm) {
    comm.barrier(Group::world);
    if (comm.rank() == 1) throw ExecutionError("broken");
    wait_for_the_end(comm);
  });
  EXPECT_EQ(errors[1], "broken");
  for (int rank : {0, 1}) {
    EXPECT_EQ(count(rank, "ncclCommDestroy"), 0);
    EXPECT_EQ(count(rank, "ncclCommAbort"), 3 * 3 + 1);  // world, dp and dp_cp on three lanes, and the root
  }
}

// A failure comes while a call is inside NCCL: the abort, which frees the communicator, waits for it. run_nccl finds
// calls on what was aborted.
TEST(NcclFailures, AnAbortSparesACallUnderWay) {
  float values[2] = {};
  const auto errors = run_nccl({.dp = 2}, kPatient, [&](Communicator& comm) {
    comm.barrier(Group::world);
    std::jthread killer;
    if (comm.rank() == 1) {
      fake::delay(1, "ncclAllReduce", 200);
      killer = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        comm.fail("killed");
      });
    }
    comm.all_reduce_sum(Group::world, {&values[comm.rank()], 1});
    wait_for_the_end(comm);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("stopped because of a failure: killed"));
}

TEST(NcclFailures, WithoutADeviceOfItsOwnARankIsRefused) {
  const auto errors = run_nccl({.dp = 2}, kHasty, [] { fake::reset(1); }, [](Communicator& comm) {
    ADD_FAILURE() << "rank " << comm.rank() << " was made";
  });
  EXPECT_THAT(errors[0], HasSubstr("no sign of rank 1"));
  EXPECT_THAT(errors[1], HasSubstr("local rank 1 has no GPU of its own: this host has 1"));
}

}  // namespace
}  // namespace fem::exec::test
