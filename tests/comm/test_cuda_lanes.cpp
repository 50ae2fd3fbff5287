// A rank's lane program on CUDA streams, on a fake CUDA whose streams are threads.
#include <gmock/gmock.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/lanes/cuda_lane_program.hpp"
#include "ir/builder.hpp"
#include "tests/comm/fake_nccl/control.hpp"
#include "tests/comm/fake_nccl/cuda.hpp"

namespace fem::exec {
namespace {

using ir::Lane;

// Gathers of two units ahead of two computations: the first computation waits for the first gather, the third gather
// for the first computation.
ir::RankProgram gathers() {
  ir::RankProgram rank;
  const auto add = [&](ir::ActionKind kind, int unit, std::uint32_t label) {
    ir::Action a = ir::action(kind, 0);
    a.unit = static_cast<std::int16_t>(unit);
    a.label = label;
    rank.actions.push_back(a);
  };
  add(ir::ActionKind::Unshard, 0, 1);
  add(ir::ActionKind::Unshard, 1, 2);
  add(ir::ActionKind::Forward, 0, 1);
  add(ir::ActionKind::Unshard, 2, 0);
  add(ir::ActionKind::Forward, 1, 0);
  rank.waits = {{2, Lane::Collective, 1}, {3, Lane::Compute, 1}, {4, Lane::Collective, 2}};
  return rank;
}

std::size_t count(const std::string& name) {
  std::size_t n = 0;
  for (const fake::Call& call : fake::calls(0)) n += call.name == name;
  return n;
}

TEST(CudaLanes, StreamsKeepTheWaitsWhateverIsSlow) {
  const ir::RankProgram rank = gathers();
  const LaneTable table(rank);
  for (std::size_t slow = 0; slow < table.batches.size(); ++slow) {
    fake::reset(1);
    {
      CudaLanes lanes(0);
      CudaLaneProgram program(lanes, table);
      std::mutex mutex;
      std::vector<std::size_t> done;
      program.run([&](const LaneTable::Batch& batch, cudaStream_t stream) {
        EXPECT_EQ(stream, lanes.stream(batch.lane));
        const std::size_t index = batch.action;
        stream->give([&, index] {
          if (index == slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          std::lock_guard lock(mutex);
          done.push_back(index);
        });
      });
      check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      ASSERT_EQ(done.size(), 5u);
      const auto at = [&](std::size_t index) { return std::ranges::find(done, index) - done.begin(); };
      EXPECT_LT(at(0), at(1));  // a lane keeps its order
      EXPECT_LT(at(1), at(3));
      EXPECT_LT(at(0), at(2));  // and these are waits
      EXPECT_LT(at(2), at(3));
      EXPECT_LT(at(1), at(4));
    }
    EXPECT_THAT(fake::violations(), testing::IsEmpty());
    EXPECT_THAT(fake::leaks(), testing::IsEmpty());
  }
}

TEST(CudaLanes, EventsAreMadeOnceAndOneWaitIsOneCall) {
  const ir::RankProgram rank = gathers();
  const LaneTable table(rank);
  fake::reset(1);
  CudaLanes lanes(0);
  CudaLaneProgram program(lanes, table);
  const std::size_t events = count("cudaEventCreateWithFlags");
  for (int step = 1; step <= 3; ++step) {
    program.run([](const LaneTable::Batch&, cudaStream_t) {});
    EXPECT_EQ(count("cudaStreamWaitEvent"), 3u * static_cast<std::size_t>(step));
    EXPECT_EQ(count("cudaEventRecord"), 3u * static_cast<std::size_t>(step));
  }
  EXPECT_EQ(count("cudaEventCreateWithFlags"), events);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace
}  // namespace fem::exec
