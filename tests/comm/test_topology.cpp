#include <gmock/gmock.h>

#include <array>

#include "executor/error.hpp"
#include "executor/topology.hpp"

namespace fem::exec {
namespace {

using ir::Group;
using testing::ElementsAre;
using testing::HasSubstr;

ir::Settings mesh(int pp, int dp, int cp, int tp, int ep = 1) {
  ir::Settings settings;
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  settings.parallel.cp = cp;
  settings.parallel.tp = tp;
  settings.parallel.ep = ep;
  return settings;
}

// The layout that users of Megatron-LM expect: tp innermost, pp outermost (its parallel_state.py documents these
// groups).
TEST(Topology, TensorParallel2DataParallel4) {
  const Topology topology(mesh(1, 4, 1, 2));
  EXPECT_EQ(topology.size(), 8);
  EXPECT_THAT(topology.members(Group::tp, 0), ElementsAre(0, 1));
  EXPECT_THAT(topology.members(Group::tp, 3), ElementsAre(2, 3));
  EXPECT_THAT(topology.members(Group::tp, 4), ElementsAre(4, 5));
  EXPECT_THAT(topology.members(Group::tp, 7), ElementsAre(6, 7));
  EXPECT_THAT(topology.members(Group::dp, 4), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(topology.members(Group::dp, 1), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(topology.members(Group::dp_cp, 1), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(topology.members(Group::pp, 5), ElementsAre(5));
  EXPECT_THAT(topology.members(Group::cp, 5), ElementsAre(5));
  EXPECT_THAT(topology.members(Group::world, 5), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Topology, AllAxes) {
  const Topology topology(mesh(2, 2, 2, 2));
  EXPECT_EQ(topology.coordinates(11), (Coordinates{.pp = 1, .dp = 0, .cp = 1, .tp = 1}));  // 8 + 0 + 2 + 1
  EXPECT_THAT(topology.members(Group::pp, 11), ElementsAre(3, 11));
  EXPECT_THAT(topology.members(Group::dp, 11), ElementsAre(11, 15));
  EXPECT_THAT(topology.members(Group::cp, 11), ElementsAre(9, 11));
  EXPECT_THAT(topology.members(Group::tp, 11), ElementsAre(10, 11));
  EXPECT_THAT(topology.members(Group::dp_cp, 11), ElementsAre(9, 11, 13, 15));
  EXPECT_EQ(topology.place(11), "pp 1 dp 0 cp 1 tp 1");
  for (int rank = 0; rank < 16; ++rank) EXPECT_EQ(topology.rank(topology.coordinates(rank)), rank);
}

// Consecutive replicas divide, replicas with the same place among them hold the same part; cp inside dp.
TEST(Topology, ShardGroupsAreConsecutiveReplicas) {
  ir::Settings settings = mesh(2, 4, 1, 2);
  settings.parallel.zero = 3;
  settings.parallel.shard = 2;
  const Topology topology(settings);
  EXPECT_THAT(topology.members(Group::shard, 0), ElementsAre(0, 2));
  EXPECT_THAT(topology.members(Group::shard, 5), ElementsAre(5, 7));
  EXPECT_THAT(topology.members(Group::replicate, 0), ElementsAre(0, 4));
  EXPECT_THAT(topology.members(Group::replicate, 15), ElementsAre(11, 15));
  settings = mesh(1, 2, 2, 1);
  settings.parallel.zero = 1;
  settings.parallel.shard = 2;
  EXPECT_THAT(Topology(settings).members(Group::shard, 1), ElementsAre(0, 1));
  EXPECT_THAT(Topology(settings).members(Group::replicate, 1), ElementsAre(1, 3));
  for (const std::int64_t none : {0, 4}) {  // all replicas divide: no groups
    settings.parallel.shard = none;
    EXPECT_THAT(Topology(settings).members(Group::shard, 1), ElementsAre(1));
    EXPECT_THAT(Topology(settings).members(Group::replicate, 1), ElementsAre(1));
  }
  settings.parallel.shard = 3;
  EXPECT_THROW(Topology{settings}, ExecutionError);
}

TEST(Topology, ExpertsDivideDataParallelRanks) {
  const Topology topology(mesh(1, 4, 1, 1, 2));
  EXPECT_THAT(topology.members(Group::ep, 0), ElementsAre(0, 1));
  EXPECT_THAT(topology.members(Group::ep, 3), ElementsAre(2, 3));
}

TEST(Topology, TiedIsTheFirstAndTheLastOfAPipeline) {
  const Topology topology(mesh(3, 2, 1, 1));
  EXPECT_THAT(topology.members(Group::tied, 0), ElementsAre(0, 4));
  EXPECT_THAT(topology.members(Group::tied, 5), ElementsAre(1, 5));
  EXPECT_THAT(topology.members(Group::tied, 2), ElementsAre(2)) << "in the middle";
  EXPECT_THAT(Topology(mesh(1, 2, 1, 1)).members(Group::tied, 1), ElementsAre(1)) << "one pipeline rank";
}

// Stages down the first direction, then down the second; each row is pp, prev, next, replica_of.
ir::Plan placed(int pp, std::vector<std::array<int, 4>> rows) {
  ir::Plan plan;
  plan.settings = mesh(pp, 2, 1, 1);
  for (const auto& [rank, prev, next, replica] : rows) {
    ir::Stage stage;
    stage.pp = static_cast<std::int16_t>(rank);
    stage.prev = static_cast<std::int16_t>(prev);
    stage.next = static_cast<std::int16_t>(next);
    stage.replica_of = static_cast<std::int16_t>(replica);
    plan.stages.push_back(stage);
  }
  return plan;
}

TEST(Topology, ARankWithBothTiedCopiesAddsThemAlone) {
  const Topology v(placed(2, {{0, -1, 1, -1}, {1, 0, 2, -1}, {1, 1, 3, -1}, {0, 2, -1, -1}}));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(v.members(Group::tied, rank), ElementsAre(rank));
    EXPECT_THAT(v.members(Group::replica, rank), ElementsAre(rank));
  }
}

TEST(Topology, ReplicasOfTwoDirectionsMeetInPairs) {
  const Topology two(placed(3, {{0, -1, 1, -1}, {1, 0, 2, -1}, {2, 1, -1, -1},
                                {2, -1, 4, 0}, {1, 3, 5, 1}, {0, 4, -1, 2}}));
  EXPECT_THAT(two.members(Group::replica, 0), ElementsAre(0, 4));
  EXPECT_THAT(two.members(Group::replica, 5), ElementsAre(1, 5));
  EXPECT_THAT(two.members(Group::replica, 3), ElementsAre(3)) << "both replicas of the middle stage";
  for (int rank = 0; rank < 6; ++rank) EXPECT_THAT(two.members(Group::tied, rank), ElementsAre(rank));
}

// Every member names the same group, itself in it, in ascending order.
TEST(Topology, GroupsAreConsistent) {
  const Topology topology(mesh(3, 4, 2, 2, 2));
  for (int g = 0; g < ir::kGroups; ++g)
    for (int rank = 0; rank < topology.size(); ++rank) {
      const auto members = topology.members(static_cast<Group>(g), rank);
      EXPECT_THAT(members, testing::Contains(rank));
      EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
      for (int member : members) EXPECT_EQ(topology.members(static_cast<Group>(g), member), members);
    }
}

TEST(Topology, RefusesWhatIsNoMesh) {
  const auto message = [](const ir::Settings& settings) -> std::string {
    try {
      Topology topology(settings);
    } catch (const ExecutionError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(mesh(0, 1, 1, 1)), HasSubstr("parallel.pp is 0, it must be at least 1"));
  EXPECT_THAT(message(mesh(1, -2, 1, 1)), HasSubstr("parallel.dp is -2"));
  EXPECT_THAT(message(mesh(1, 4, 1, 1, 3)), HasSubstr("parallel.ep = 3 does not divide parallel.dp = 4"));
  EXPECT_THAT(message(mesh(1 << 20, 1 << 20, 1, 1)), HasSubstr("more ranks than an int can count"));
  EXPECT_THROW(Topology(mesh(2, 1, 1, 1)).coordinates(2), ExecutionError);
  EXPECT_THROW(Topology(mesh(2, 1, 1, 1)).rank({.pp = 0, .dp = 1}), ExecutionError);
}

TEST(ExecutionError, IsOneSentence) {
  const ExecutionError error("no answer", 2, 17, "SendBackward s1 m3 to 0", "pp 1 dp 0");
  EXPECT_STREQ(error.what(), "rank 2 (pp 1 dp 0), step 17, SendBackward s1 m3 to 0: no answer");
  EXPECT_EQ(error.message(), "no answer");
  EXPECT_STREQ(ExecutionError("no answer").what(), "no answer");
  EXPECT_STREQ(ExecutionError("no answer", 0).what(), "rank 0: no answer");
  EXPECT_STREQ(ExecutionError("no answer", -1, 0).what(), "step 0: no answer");
}

TEST(FemCheck, NamesFileConditionAndMessage) {
  try {
    const int rank = 3;
    FEM_CHECK(rank == 4, "rank is " + std::to_string(rank));
    FAIL();
  } catch (const ExecutionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("test_topology.cpp:"));
    EXPECT_THAT(error.what(), HasSubstr("rank is 3 (violated: rank == 4)"));
  }
}

}  // namespace
}  // namespace fem::exec
