// Random programs on many threads: no order of arrival may lose, mix or hang anything. Built with ThreadSanitizer this
// is also the test that every hand-over is announced.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "executor/error.hpp"
#include "rules.hpp"
#include "world_for_test.hpp"

namespace fem::exec::test {
namespace {

using ir::Group;
using ir::Lane;
using testing::Each;
using testing::IsEmpty;

constexpr CommOptions kPatient{std::chrono::milliseconds(60'000)};

class LocalStress : public testing::TestWithParam<int> {};

TEST_P(LocalStress, FourLanesOfRandomPrograms) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  const auto errors = run_local({.pp = 2, .dp = 2, .tp = 1}, kPatient, [seed](Communicator& comm) {
    std::vector<std::thread> lanes;
    lanes.emplace_back([&] { random_batches(comm, seed, 150, Lane::P2p); });
    lanes.emplace_back([&] { random_batches(comm, seed + 100, 150, Lane::Copy); });
    lanes.emplace_back([&] { random_collectives(comm, seed + 200, 80, Lane::Compute); });
    random_collectives(comm, seed + 300, 80, Lane::Collective);
    for (std::thread& lane : lanes) lane.join();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Seeds, LocalStress, testing::Range(1, 7));

// One lane that mixes everything, each kind following another at once.
TEST(LocalStressMixed, BatchesAndCollectivesAlternate) {
  const auto errors = run_local({.pp = 4, .dp = 2}, kPatient, [](Communicator& comm) {
    for (std::uint64_t round = 0; round < 60; ++round) {
      random_batches(comm, round, 2, Lane::Collective);
      random_collectives(comm, round, 1, Lane::Collective);
      comm.barrier(Group::world);
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// A rank fails at a random moment of a random program: every rank ends, and none with a torn buffer in use.
TEST(LocalStressFailure, EveryRankEnds) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const auto errors = run_local({.pp = 2, .dp = 2}, kPatient, [seed](Communicator& comm) {
      std::thread p2p([&] {
        try {
          random_batches(comm, seed, 100000, Lane::P2p);
        } catch (const ExecutionError&) {
          // The other lane of this rank reports.
        }
      });
      std::string failure;
      try {
        const int rounds = comm.rank() == 2 ? static_cast<int>(3 + 7 * seed) : 100000;
        random_collectives(comm, seed + 50, rounds, Lane::Collective);
        failure = "rank 2 stops here";
      } catch (const ExecutionError& error) {
        failure = error.what();
      }
      comm.fail(failure);
      p2p.join();
      throw ExecutionError(failure);
    });
    for (const std::string& error : errors) EXPECT_THAT(error, testing::HasSubstr("rank 2 stops here"));
  }
}

}  // namespace
}  // namespace fem::exec::test
