// Lanes as threads under ThreadSanitizer: correct programs are clean, and a missing wait is a race that it reports.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "executor/lanes/announce.hpp"
#include "executor/lanes/thread_lanes.hpp"
#include "tests/passes/orders.hpp"
#include "tests/passes/run_passes.hpp"

namespace {
std::atomic<int> reports{0};
}

extern "C" {
void __tsan_on_report(void*) { ++reports; }
// A report for each replay, though many have the same stacks; they are counted, not shown.
const char* __tsan_default_options() {
  return "suppress_equal_stacks=0:suppress_equal_addresses=0:exitcode=0:log_path=/dev/null";
}
}

namespace fem {
namespace {

using exec::LaneTable;
using ir::Lane;
using test::Placement;

ir::Plan lane_plan(ir::Plan plan, std::int64_t zero, const char* reduce, const std::string& passes) {
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global *= 2;
  plan.settings.parallel.zero = zero;
  plan.settings.parallel.reduce = reduce;
  return test::run_passes("communication,units," + passes + "lanes,arena", std::move(plan));
}

std::vector<ir::Plan> plans() {
  const ir::Plan one = test::make_plan(Placement::Loop, 2, 1, 3, test::one_f_one_b(2, 3));
  const ir::Plan v = test::make_plan(Placement::V, 2, 2, 2,
                                     test::random_order(3, Placement::V, 2, 2, 2, true, false));
  return {lane_plan(one, 0, "step", "receive_ahead,"), lane_plan(one, 3, "microbatch", "recompute,prefetch,"),
          lane_plan(one, 1, "step", "offload{gap=2,ahead=1},"), lane_plan(v, 3, "step", "prefetch{distance=2},")};
}

// Two batches that are to meet: `early` waits until `late` has begun and goes first, and what they tell each other
// orders nothing (relaxed). Without this a lane that runs ahead may happen to see, in another wait, that the batch is
// done.
struct Meeting {
  std::size_t early = SIZE_MAX, late = SIZE_MAX;
  std::atomic<bool> begun{false}, passed{false};
};

void await(const std::atomic<bool>& flag) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (!flag.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// Runs the rank's lanes once, nothing but announcing; messages arrive at once. Returns the number of reports.
int replay(exec::ThreadLanes& lanes, const ir::Plan& plan, std::size_t rank, std::size_t early = SIZE_MAX,
           std::size_t late = SIZE_MAX) {
  const LaneTable table(plan.programs[0].ranks[rank]);
  const exec::Announcer announcer(plan, 0, rank);
  Meeting meeting{early, late};
  const int before = reports;
  lanes.run(
      table,
      [&](const LaneTable::Batch& batch) {
        const auto index = static_cast<std::size_t>(&batch - table.batches.data());
        if (index == early) await(meeting.begun);
        if (index == late) {
          meeting.begun.store(true, std::memory_order_relaxed);
          await(meeting.passed);
        }
        announcer.announce(index);
        if (index == early) meeting.passed.store(true, std::memory_order_relaxed);
      },
      [](const std::exception_ptr&) {});
  return reports - before;
}

class Lanes : public ::testing::Test {
 protected:
  exec::ThreadLanes lanes_{[](const std::function<void()>& body) { body(); }};
};

TEST_F(Lanes, CorrectProgramsAreClean) {
  for (const ir::Plan& plan : plans()) {
    for (std::size_t r = 0; r < plan.programs[0].ranks.size(); ++r) {
      for (int repeat = 0; repeat < 20; ++repeat) EXPECT_EQ(replay(lanes_, plan, r), 0);
    }
  }
}

// Each wait in turn. What waited no longer does and goes first: ThreadSanitizer sees two uses that nothing orders.
TEST_F(Lanes, EachMissingWaitIsARace) {
  int removed = 0;
  for (const ir::Plan& plan : plans()) {
    for (std::size_t r = 0; r < plan.programs[0].ranks.size(); ++r) {
      const LaneTable table(plan.programs[0].ranks[r]);
      for (std::size_t w = 0; w < plan.programs[0].ranks[r].waits.size(); ++w, ++removed) {
        ir::Plan changed = plan;
        ir::RankProgram& rank = changed.programs[0].ranks[r];
        const ir::Wait wait = rank.waits[w];
        rank.waits.erase(rank.waits.begin() + static_cast<std::ptrdiff_t>(w));
        // Labels stay: other waits may need them.
        const std::size_t awaited = table.by_lane[ir::lane_index(wait.lane)][wait.count - 1];
        const auto waiting = static_cast<std::size_t>(
            std::ranges::find(table.batches, wait.action, &LaneTable::Batch::action) - table.batches.begin());
        EXPECT_GT(replay(lanes_, changed, r, waiting, awaited), 0)
            << "rank " << r << ", action " << wait.action << " without wait " << ir::name(wait.lane)
            << ">=" << wait.count;
      }
    }
  }
  EXPECT_GT(removed, 150);
}

// An error on one lane ends all of them, also those that wait for what will never come, and reaches the caller.
TEST_F(Lanes, AnErrorEndsEveryLane) {
  const ir::Plan plan = plans()[0];
  const LaneTable table(plan.programs[0].ranks[0]);
  for (std::size_t broken = 0; broken < table.batches.size(); ++broken) {
    std::atomic<int> told{0};
    std::string what;
    try {
      lanes_.run(
          table,
          [&](const LaneTable::Batch& batch) {
            if (&batch == &table.batches[broken]) throw std::runtime_error("broken " + std::to_string(broken));
          },
          [&](const std::exception_ptr&) { ++told; });
    } catch (const std::runtime_error& error) {
      what = error.what();
    }
    EXPECT_EQ(what, "broken " + std::to_string(broken));
    EXPECT_EQ(told, 1);
  }
  EXPECT_EQ(replay(lanes_, plan, 0), 0);  // and the lanes can be used again
}

}  // namespace
}  // namespace fem
