// The store that GPU runs meet at, with threads as ranks and no GPU.
#include <gmock/gmock.h>

#include <barrier>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "executor/comm/nccl_rendezvous.hpp"
#include "executor/error.hpp"
#include "tests/comm/free_port.hpp"

namespace fem::exec {
namespace {

using test::free_port;
using testing::HasSubstr;

LaunchEnvironment launch(int rank, int world_size, int port) {
  LaunchEnvironment launch;
  launch.launcher = Launcher::torchrun;
  launch.rank = rank;
  launch.world_size = world_size;
  launch.master_address = "127.0.0.1";
  launch.master_port = port;
  return launch;
}

// Every rank gets rank 0's bytes, zeros among them, and hears of a failure; only the first one stays.
void meet(const LaunchEnvironment& own, std::barrier<>& all) {
  const std::string id("a\0b\377c", 5);
  Rendezvous rendezvous(own, std::chrono::seconds(20));
  EXPECT_EQ(rendezvous.share("id", own.rank == 0 ? id : "ignored"), id);
  EXPECT_EQ(rendezvous.failure(), "");
  all.arrive_and_wait();
  if (own.rank == 1) rendezvous.announce_failure("rank 1: broken");
  all.arrive_and_wait();
  rendezvous.announce_failure("later");
  EXPECT_EQ(rendezvous.failure(), "rank 1: broken");
  all.arrive_and_wait();  // rank 0 hosts the store to the end
}

void meet_all(int port, bool agent_store) {
  std::barrier all(3);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&all, rank, port, agent_store] {
      LaunchEnvironment own = launch(rank, 3, port);
      own.agent_store = agent_store;
      meet(own, all);
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(Rendezvous, Rank0HostsTheStore) { meet_all(free_port(), false); }

TEST(Rendezvous, TheAgentHostsTheStore) {
  const int port = free_port();
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore agent("127.0.0.1", options);
  meet_all(port, true);
}

TEST(Rendezvous, NamesWhoIsMissing) {
  const int port = free_port();
  try {
    const Rendezvous rendezvous(launch(0, 3, port), std::chrono::seconds(1));
    FAIL();
  } catch (const ExecutionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no sign of rank 1, 2"));
  }
}

TEST(Rendezvous, NamesAnAddressWhereNobodyListens) {
  const int port = free_port();
  try {
    const Rendezvous rendezvous(launch(1, 2, port), std::chrono::seconds(1));
    FAIL();
  } catch (const ExecutionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no rendezvous at 127.0.0.1:" + std::to_string(port)));
  }
}

}  // namespace
}  // namespace fem::exec
