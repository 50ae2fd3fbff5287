// The fake finds what NCCL's rules forbid: without that the tests on it would prove nothing.
#include <gmock/gmock.h>
#include <nccl.h>

#include <thread>

#include "tests/comm/fake_nccl/control.hpp"

namespace fem::exec::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Member {
  int rank;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// Two members, a thread each. What they leave is aborted.
template <class Body>
void on_two(const Body& body) {
  fake::reset(2);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::jthread> threads;
  for (int rank : {0, 1})
    threads.emplace_back([&, rank] {
      cudaSetDevice(rank);
      Member own{rank};
      cudaStreamCreateWithFlags(&own.stream, cudaStreamNonBlocking);
      ncclCommInitRank(&own.comm, 2, id, rank);
      body(own);
      if (own.comm) ncclCommAbort(own.comm);
      cudaStreamDestroy(own.stream);
    });
}

TEST(FakeNccl, MovesData) {
  on_two([](Member& own) {
    int values[2] = {own.rank + 5, own.rank + 5};
    ncclAllGather(&values[own.rank], values, 4, ncclInt8, own.comm, own.stream);
    fake::finish();
    EXPECT_THAT(values, ElementsAre(5, 6));
    ncclCommDestroy(own.comm);
    own.comm = nullptr;
  });
  EXPECT_THAT(fake::violations(), IsEmpty());
  EXPECT_THAT(fake::leaks(), IsEmpty());
}

TEST(FakeNccl, FindsSizesThatDiffer) {
  on_two([](Member& own) {
    char data[8] = {};
    ncclBroadcast(data, data, own.rank == 0 ? 4 : 8, ncclInt8, 0, own.comm, own.stream);
  });
  EXPECT_THAT(fake::violations(), Contains(HasSubstr("broadcast of 8 bytes")));
}

TEST(FakeNccl, FindsAnOtherOrder) {
  on_two([](Member& own) {
    float data[2] = {};
    for (int i : {0, 1})
      if (i == own.rank)
        ncclAllReduce(data, data, 1, ncclFloat, ncclSum, own.comm, own.stream);
      else
        ncclBroadcast(data, data, 4, ncclInt8, 0, own.comm, own.stream);
  });
  EXPECT_THAT(fake::violations(), Contains(HasSubstr("collective 0 is ")));
}

TEST(FakeNccl, FindsHalvesThatDiffer) {
  on_two([](Member& own) {
    char data[8] = {};
    if (own.rank == 0)
      ncclSend(data, 4, ncclInt8, 1, own.comm, own.stream);
    else
      ncclRecv(data, 8, ncclInt8, 0, own.comm, own.stream);
  });
  EXPECT_THAT(fake::violations(), ElementsAre(HasSubstr("send of 4 bytes")));
}

TEST(FakeNccl, FindsCallsOnWhatIsGone) {
  on_two([](Member& own) {
    ncclCommDestroy(own.comm);
    char data = 0;
    EXPECT_EQ(ncclBroadcast(&data, &data, 1, ncclInt8, 0, own.comm, own.stream), ncclInvalidArgument);
    EXPECT_EQ(ncclCommDestroy(own.comm), ncclInvalidArgument);
    own.comm = nullptr;
  });
  EXPECT_THAT(fake::violations(), SizeIs(4));
}

TEST(FakeNccl, FindsGroupsThatDoNotEnd) {
  fake::reset(1);
  std::jthread([] { ncclGroupStart(); }).join();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(fake::violations(), ElementsAre(HasSubstr("a thread ends between"), HasSubstr("without ncclGroupStart")));
}

TEST(FakeNccl, LaunchesAGroupAtItsEnd) {
  on_two([](Member& own) {
    int mine = own.rank + 1, theirs = 0;
    ncclGroupStart();
    ncclRecv(&theirs, 4, ncclInt8, 1 - own.rank, own.comm, own.stream);
    ncclSend(&mine, 4, ncclInt8, 1 - own.rank, own.comm, own.stream);
    cudaDeviceSynchronize();
    EXPECT_EQ(theirs, 0);
    ncclGroupEnd();
    fake::finish();
    EXPECT_EQ(theirs, 2 - own.rank);
  });
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST(FakeNccl, FindsEventsOfOtherDevicesAndLeaks) {
  fake::reset(2);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaSetDevice(1);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaSetDevice(0);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(fake::violations(), SizeIs(1));
  EXPECT_THAT(fake::leaks(), SizeIs(2));
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
  EXPECT_THAT(fake::leaks(), IsEmpty());
}

}  // namespace
}  // namespace fem::exec::test
