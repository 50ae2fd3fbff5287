#include <gmock/gmock.h>

#include <thread>

#include "executor/comm/operation.hpp"
#include "executor/comm/progress.hpp"

namespace fem::exec {
namespace {

using ir::Lane;

TEST(Progress, TellsStepAndAction) {
  Progress progress;
  EXPECT_EQ(progress.step(Lane::P2p), -1);
  EXPECT_EQ(progress.text(Lane::P2p), "not inside a step");
  progress.enter(0, 3);
  EXPECT_EQ(progress.text(Lane::Compute), "at step 0, action 3") << "nobody to describe it";
  {
    const ProgressScope scope(progress, [](std::int64_t step, std::uint32_t action) {
      return "action " + std::to_string(action) + " as of step " + std::to_string(step);
    });
    progress.enter(17, 5);
    EXPECT_EQ(progress.text(Lane::Collective), "at step 17, action 5 as of step 17") << "as lane compute";
    progress.enter(16, 9, Lane::Collective);
    EXPECT_EQ(progress.text(Lane::Collective), "at step 16, action 9 as of step 16");
    EXPECT_EQ(progress.text(Lane::P2p), "at step 17, action 5 as of step 17");
    progress.enter(std::int64_t{1} << 38, (1u << 24) - 1);
    EXPECT_EQ(progress.step(Lane::Compute), std::int64_t{1} << 38);
    EXPECT_EQ(progress.action(Lane::Compute), "action 16777215 as of step 274877906944");
  }
  EXPECT_EQ(progress.text(Lane::Compute), "not inside a step") << "the scope is over";
}

// A reader never sees a description after it was taken back.
TEST(Progress, DescriptionIsNotUsedAfterItsScope) {
  Progress progress;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop.load()) progress.text(Lane::Compute);
  });
  for (int i = 0; i < 200; ++i) {
    auto name = std::make_unique<std::string>("alive");
    const ProgressScope scope(progress, [&name](std::int64_t, std::uint32_t) { return *name; });
    progress.enter(i, 1);
  }
  stop = true;
  reader.join();
}

TEST(Operation, Text) {
  OperationRecords records;
  EXPECT_EQ(text(records), "doing nothing in the communicator");
  records[channel_of(Lane::P2p)].enter(
      {.kind = OperationKind::exchange, .send = true, .peer = 1, .tag = 3, .bytes = 64, .halves = 2});
  EXPECT_EQ(text(records), "in exchange of 2 halves, first: send tag 3, 64 bytes to rank 1 (lane p2p)");
  records[kBarrierChannel].enter({.kind = OperationKind::barrier, .group = ir::Group::dp});
  records[channel_of(Lane::P2p)].leave();
  EXPECT_EQ(text(records), "in barrier over dp");
  EXPECT_EQ(text(Operation{.kind = OperationKind::broadcast, .group = ir::Group::tp, .peer = 1, .bytes = 8}),
            "broadcast over tp of 8 bytes from member 1");
}

}  // namespace
}  // namespace fem::exec
