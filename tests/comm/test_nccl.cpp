// The NCCL communicator's host code on a fake NCCL: the rules of all backends, and what it asks of NCCL.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "executor/comm/nccl_groups.hpp"
#include "executor/error.hpp"
#include "nccl_world_for_test.hpp"
#include "rules.hpp"
#include "tests/comm/fake_nccl/control.hpp"

namespace fem::exec::test {
namespace {

using ir::Group;
using ir::Lane;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr CommOptions kPatient{std::chrono::milliseconds(60'000)};

std::vector<fake::Call> named(int device, const std::string& name) {
  std::vector<fake::Call> calls = fake::calls(device);
  std::erase_if(calls, [&](const fake::Call& call) { return call.name != name; });
  return calls;
}

class NcclRules : public testing::TestWithParam<Mesh> {};

// In one world, whose beginning takes most of the time.
TEST_P(NcclRules, Hold) {
  const auto errors = run_nccl(GetParam(), kPatient, [&](Communicator& comm) {
    for (const Rule& rule : rules()) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, rule.name);
      if (rule.nccl) rule.run(*blocking(comm));
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(AllMeshes, NcclRules,
                         testing::Values(Mesh{}, Mesh{.pp = 2}, Mesh{.dp = 3}, Mesh{.pp = 3, .dp = 2},
                                         Mesh{.pp = 2, .dp = 2, .cp = 2, .tp = 2, .ep = 2}),
                         [](const auto& info) { return info.param.name(); });

// One split of the world for each group and lane, in the order of ir/groups.def, on every rank: colour is the group's
// first member, the key the rank. NCCL gives what it knows only to those that come in the same order.
TEST(Nccl, CreatesAllGroupsInOneOrderOnEveryRank) {
  const Mesh mesh{.pp = 2, .dp = 2, .cp = 2};
  EXPECT_THAT(run_nccl(mesh, kPatient, [](Communicator&) {}), Each(IsEmpty()));
  const Topology topology(settings(mesh));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::vector<std::pair<int, long long>> expected, made;
    for (int group = 0; group < ir::kGroups; ++group) {
      const std::vector<int> members = topology.members(static_cast<Group>(group), rank);
      const int colour = members.size() == 1 ? NCCL_SPLIT_NOCOLOR : members.front();
      for (Lane lane : {Lane::Compute, Lane::P2p, Lane::Collective}) {
        static_cast<void>(lane);
        expected.emplace_back(colour, rank);
      }
    }
    for (const fake::Call& call : named(rank, "ncclCommSplit")) made.emplace_back(call.peer, call.bytes);
    EXPECT_EQ(made, expected) << "rank " << rank;
  }
}

TEST(Nccl, EachLaneHasAStreamAndACommunicatorOfItsOwn) {
  std::vector<int> memory[2] = {std::vector<int>(2 * ir::kLanes), std::vector<int>(2 * ir::kLanes)};
  const auto errors = run_nccl({.dp = 2}, kPatient, [&](Communicator& comm) {
    for (Lane lane : {Lane::Compute, Lane::P2p, Lane::Collective})
      for (int round = 0; round < 2; ++round) {
        int* values = memory[comm.rank()].data() + 2 * static_cast<int>(lane);
        comm.all_gather(Group::dp, values + comm.rank(), values, sizeof(int), lane);
      }
    try {
      int value = 0;
      comm.all_gather(Group::dp, &value, &value, sizeof(int), Lane::Copy);
      ADD_FAILURE() << "lane copy communicates";
    } catch (const ExecutionError& error) {
      EXPECT_THAT(error.what(), HasSubstr("lane copy has no NCCL communicator for group dp"));
    }
    comm.barrier(Group::world);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (int rank : {0, 1}) {
    const std::vector<fake::Call> calls = named(rank, "ncclAllGather");
    ASSERT_EQ(calls.size(), 6u);
    std::set<int> comms;
    std::set<const void*> streams;
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(calls[i].comm, calls[i / 2 * 2].comm) << "the lane's own";
      EXPECT_EQ(calls[i].stream, calls[i / 2 * 2].stream) << "the lane's own";
      EXPECT_EQ(calls[i].bytes, 4);
      comms.insert(calls[i].comm);
      streams.insert(calls[i].stream);
    }
    EXPECT_EQ(comms.size(), 3u);
    EXPECT_EQ(streams.size(), 3u);
  }
}

// Both ranks post two sends and two receives to each other: alone, each would wait for a receive that comes later.
TEST(Nccl, ABatchOfFourHalvesIsOneGroup) {
  const auto errors = run_nccl({.pp = 2}, kPatient, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    int sent[] = {10 + comm.rank(), 20 + comm.rank()}, received[] = {0, 0};
    const P2pHalf halves[] = {{true, peer, 1, &sent[0], 4}, {true, peer, 2, &sent[1], 4},
                              {false, peer, 1, &received[0], 4}, {false, peer, 2, &received[1], 4}};
    blocking(comm)->exchange(halves);
    EXPECT_THAT(received, ElementsAre(10 + peer, 20 + peer));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (int rank : {0, 1}) {
    std::vector<std::string> names;
    std::set<int> groups, comms;
    for (const fake::Call& call : fake::calls(rank)) {
      if (call.name == "ncclGroupStart" || call.name == "ncclGroupEnd") names.push_back(call.name);
      if (call.name != "ncclSend" && call.name != "ncclRecv") continue;
      names.push_back(call.name);
      groups.insert(call.group);
      comms.insert(call.comm);
    }
    EXPECT_THAT(names,
                ElementsAre("ncclGroupStart", "ncclSend", "ncclSend", "ncclRecv", "ncclRecv", "ncclGroupEnd"));
    EXPECT_EQ(groups.size(), 1u);
    EXPECT_NE(*groups.begin(), -1) << "inside of a group";
    EXPECT_EQ(comms.size(), 1u);
  }
}

// The ranks give two lanes their work in opposite orders. With one communicator or stream for both they would wait for
// each other for good.
TEST(Nccl, LanesDoNotWaitForEachOther) {
  const auto errors = run_nccl({.pp = 2}, kPatient, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    int value = comm.rank() == 0 ? 7 : 0;
    std::vector<int> ranks(2, comm.rank());
    const P2pHalf half{comm.rank() == 0, peer, 1, &value, sizeof value};
    const auto gather = [&] {
      comm.all_gather(Group::world, &ranks[static_cast<std::size_t>(comm.rank())], ranks.data(), sizeof(int));
    };
    if (comm.rank() == 0) gather();
    comm.exchange({&half, 1});
    if (comm.rank() == 1) {
      gather();
      comm.exchange({});  // nothing: no group of its own
    }
    comm.barrier(Group::world);  // after the gathering, in the same lane
    EXPECT_THAT(ranks, ElementsAre(0, 1));
    int after = comm.rank() == 0 ? 8 : 0;
    const P2pHalf second{comm.rank() == 0, peer, 1, &after, sizeof after};
    blocking(comm)->exchange({&second, 1});
    EXPECT_EQ(value, 7);
    EXPECT_EQ(after, 8);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (int rank : {0, 1}) EXPECT_EQ(named(rank, "ncclGroupStart").size(), 2u);
}

// Threads of lanes have a current device of their own, at first device 0. The fake refuses an event of another device
// than the stream's, as CUDA does.
TEST(Nccl, CallsMayComeFromAnyThread) {
  const auto errors = run_nccl({.dp = 2}, kPatient, [](Communicator& comm) {
    std::jthread p2p([&] {
      for (int i = 0; i < 20; ++i) {
        int value = comm.rank() == 0 ? i : -1;
        const P2pHalf half{comm.rank() == 0, 1 - comm.rank(), i, &value, sizeof value};
        blocking(comm)->exchange({&half, 1}, Lane::P2p);
        EXPECT_EQ(value, i);
      }
    });
    std::jthread collective([&] {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> values(3, static_cast<float>(i + comm.rank()));
        blocking(comm)->all_reduce_sum(Group::dp, values, Payload::Fp32, Lane::Collective);
        EXPECT_THAT(values, Each(static_cast<float>(2 * i + 1)));
      }
    });
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// NCCL adds by itself: the same bits on every member, in an order that nobody knows. Whole numbers have one sum.
TEST(Nccl, SumsAreNcclsOwn) {
  const auto errors = run_nccl({.pp = 2, .dp = 3}, kPatient, [](Communicator& comm) {
    const auto own = blocking(comm);
    std::vector<float> data(1001);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i) * static_cast<float>(1 + own->rank());
    own->all_reduce_sum(Group::world, data);
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], 21.0f * static_cast<float>(i));

    std::vector<float> blocks(3 * 7);
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<float>(i);
    own->reduce_scatter_sum(Group::dp, blocks);
    for (std::size_t i = 0; i < 7; ++i) {
      const std::size_t at = static_cast<std::size_t>(own->group_rank(Group::dp)) * 7 + i;
      EXPECT_EQ(blocks[at], 3.0f * static_cast<float>(at));
    }

    data = random_floats(static_cast<std::uint64_t>(comm.rank()), 64);
    own->all_reduce_sum(Group::world, data);
    std::vector<float> all(6 * 64);
    own->all_gather(Group::world, data.data(), all.data(), 64 * sizeof(float));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], data[i % 64]) << "equal bits on every member";
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(named(rank, "ncclAllReduce").size(), 2u);
    EXPECT_EQ(named(rank, "ncclReduceScatter").size(), 1u);
  }
}

// Communicators first, each once, then the streams that they used.
TEST(Nccl, GivesBackCommunicatorsBeforeStreams) {
  EXPECT_THAT(run_nccl({.pp = 2, .dp = 2}, kPatient, [](Communicator& comm) { comm.barrier(Group::world); }),
              Each(IsEmpty()));
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<std::string> names;
    std::set<int> destroyed;
    for (const fake::Call& call : fake::calls(rank)) {
      if (call.name == "ncclCommDestroy" || call.name == "cudaStreamDestroy") names.push_back(call.name);
      if (call.name == "ncclCommDestroy") destroyed.insert(call.comm);
    }
    // world, pp, dp, dp_cp and tied have two members or more here, a communicator for each of three lanes; and the
    // root.
    EXPECT_EQ(destroyed.size(), 5u * 3 + 1);
    const auto first_stream = std::find(names.begin(), names.end(), "cudaStreamDestroy");
    EXPECT_EQ(first_stream - names.begin(), 16);
    EXPECT_EQ(names.end() - first_stream, ir::kLanes);
  }
}

}  // namespace
}  // namespace fem::exec::test
