// Nodes that groups and messages cross, on meshes small enough to count by hand.
#include <gtest/gtest.h>

#include "passes/process_layout.hpp"

namespace fem::passes {
namespace {

ir::Settings mesh(std::int64_t pp, std::int64_t dp, std::int64_t cp, std::int64_t tp) {
  ir::Settings settings;
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  settings.parallel.cp = cp;
  settings.parallel.tp = tp;
  return settings;
}

// pp=4, dp=2, tp=2: rank = pp*4 + dp*2 + tp. Nodes of 8 hold two pipeline coordinates each.
TEST(ProcessLayout, TwoPipelineRanksANode) {
  const ProcessLayout layout(mesh(4, 2, 1, 2), 8);
  EXPECT_EQ(layout.world(), 16);
  EXPECT_EQ(layout.per_pipeline_rank(), 4);
  EXPECT_EQ(layout.link(0, 1), LinkLevel::InNode);
  EXPECT_EQ(layout.link(1, 2), LinkLevel::BetweenNodes);
  EXPECT_EQ(layout.link(2, 3), LinkLevel::InNode);
  EXPECT_EQ(layout.link(3, 0), LinkLevel::BetweenNodes);
  EXPECT_EQ(layout.pairs_between_nodes(0, 1), 0);
  EXPECT_EQ(layout.pairs_between_nodes(1, 2), 4);
}

// Three ranks a coordinate on nodes of 4: coordinates 0 and 1 are ranks 0 1 2 and 3 4 5; pairs (0,3) stay on node 0,
// (1,4) and (2,5) cross.
TEST(ProcessLayout, SomePairsCross) {
  const ProcessLayout layout(mesh(2, 3, 1, 1), 4);
  EXPECT_EQ(layout.pairs_between_nodes(0, 1), 2);
  EXPECT_EQ(layout.link(0, 1), LinkLevel::BetweenNodes);
}

TEST(ProcessLayout, ShapesOfGroups) {
  // 2 x 8 x 1 x 2 = 32 ranks on 4 nodes of 8; a pipeline coordinate is two nodes.
  const ProcessLayout layout(mesh(2, 8, 1, 2), 8);
  const std::vector<int> both = {0, 1}, second = {1};
  const auto expect = [&](ir::Group group, std::int64_t ranks, std::int64_t nodes, std::int64_t per_node) {
    const bool crosses = group == ir::Group::tied || group == ir::Group::replica;
    const GroupShape shape = layout.shape(group, crosses ? both : second);
    EXPECT_EQ(shape.ranks, ranks) << ir::name(group);
    EXPECT_EQ(shape.nodes, nodes) << ir::name(group);
    EXPECT_EQ(shape.per_node, per_node) << ir::name(group);
    EXPECT_EQ(shape.crossings, nodes > 1 ? nodes : 0) << ir::name(group);
  };
  expect(ir::Group::world, 32, 4, 8);
  expect(ir::Group::pp, 2, 2, 1);      // ranks i and 16 + i
  expect(ir::Group::dp, 8, 2, 4);      // every second rank of two nodes
  expect(ir::Group::dp_cp, 8, 2, 4);
  expect(ir::Group::tp, 2, 1, 2);      // neighbours
  expect(ir::Group::cp, 1, 1, 1);
  expect(ir::Group::tied, 2, 2, 1);
  expect(ir::Group::replica, 2, 2, 1);
  EXPECT_EQ(layout.shape(ir::Group::tied, second).ranks, 1);  // a rank that holds both copies
}

TEST(ProcessLayout, ShardGroupsStayInANode) {
  // 16 replicas on 2 nodes of 8: groups of 8 lie inside a node, what sums between them crosses.
  ir::Settings settings = mesh(1, 16, 1, 1);
  settings.parallel.zero = 3;
  settings.parallel.shard = 8;
  const ProcessLayout layout(settings, 8);
  const GroupShape shard = layout.shape(ir::Group::shard, std::vector{0});
  EXPECT_EQ(shard.ranks, 8);
  EXPECT_EQ(shard.nodes, 1);
  const GroupShape replicate = layout.shape(ir::Group::replicate, std::vector{0});
  EXPECT_EQ(replicate.ranks, 2);
  EXPECT_EQ(replicate.nodes, 2);
}

TEST(ProcessLayout, TheWorstGroupCounts) {
  // dp=3 on nodes of 4: coordinate 0 is ranks 0 1 2 of node 0, coordinate 1 is 3 | 4 5.
  const ProcessLayout layout(mesh(2, 3, 1, 1), 4);
  EXPECT_EQ(layout.shape(ir::Group::dp_cp, std::vector{0}).nodes, 1);
  const GroupShape second = layout.shape(ir::Group::dp_cp, std::vector{1});
  EXPECT_EQ(second.nodes, 2);
  EXPECT_EQ(second.per_node, 0);  // one here, two there
}

HardwareProfile machine() {
  HardwareProfile profile;
  profile.node_size = 8;
  profile.links[0] = {1, 100};
  profile.links[1] = {10, 5};
  return profile;
}

// Ring over n ranks: 2(n-1)/n of the buffer and 2(n-1) messages.
TEST(Collectives, OneNode) {
  EXPECT_DOUBLE_EQ(all_reduce_time(machine(), {4, 1, 4, 0}, 800), 2 * (3.0 / 4 * 800 / 100 + 3 * 1));
  EXPECT_DOUBLE_EQ(gather_time(machine(), {4, 1, 4, 0}, 800), 3.0 / 4 * 800 / 100 + 3 * 1);
  EXPECT_EQ(all_reduce_time(machine(), {1, 1, 1, 0}, 800), 0);
}

// Two nodes of four: inside 3/4 of 800 at 100 and 3 messages; between nodes 1/2 of a quarter, 200, at 5 and 1 message.
TEST(Collectives, ByNode) {
  EXPECT_DOUBLE_EQ(all_reduce_time(machine(), {8, 2, 4, 2}, 800), 2 * (6 + 3 + 20 + 10));
}

// Nodes that hold different numbers: one ring over all at the slowest link's speed.
TEST(Collectives, UnevenNodes) {
  EXPECT_DOUBLE_EQ(all_reduce_time(machine(), {3, 2, 0, 2}, 600), 2 * (2.0 / 3 * 600 / 5 + 2 * 10));
}

// What is sent in all: every rank sends 2(n-1)/n of the buffer in a ring.
TEST(Collectives, Bytes) {
  const LinkBytes inside = all_reduce_bytes({4, 1, 4, 0}, 800);
  EXPECT_EQ(inside.in_node, 4 * 1200);
  EXPECT_EQ(inside.between_nodes, 0);
  // By node: eight ranks send 2 x 3/4 x 800 inside and 2 x 1/2 x 200 between.
  const LinkBytes both = all_reduce_bytes({8, 2, 4, 2}, 800);
  EXPECT_EQ(both.in_node, 8 * 1200);
  EXPECT_EQ(both.between_nodes, 8 * 200);
  // Three edges of a ring, each 2 x 2/3 x 600; two of them cross.
  const LinkBytes uneven = all_reduce_bytes({3, 2, 0, 2}, 600);
  EXPECT_DOUBLE_EQ(uneven.in_node, 800);
  EXPECT_DOUBLE_EQ(uneven.between_nodes, 1600);
}

}  // namespace
}  // namespace fem::passes
