// Prices of single actions, computed by hand from the definitions, and published bubble rates from measured times.
#include <gtest/gtest.h>

#include "ir/builder.hpp"
#include "passes/communication.hpp"
#include "passes/pass.hpp"
#include "passes/simulate.hpp"
#include "passes/throughput.hpp"
#include "passes/traffic.hpp"
#include "small_model.hpp"

namespace fem {
namespace {

using namespace test;
using passes::HardwareProfile;
using passes::PricedCosts;

std::unique_ptr<PricedCosts> price(const ir::Plan& plan, HardwareProfile profile) {
  ir::DiagnosticSink sink;
  auto costs = PricedCosts::create(plan, std::move(profile), sink);
  EXPECT_TRUE(costs) << sink.text();
  return costs;
}

ir::Plan two_ranks() { return make_plan(Placement::Loop, 2, 1, 2, one_f_one_b(2, 2)); }

double cost(const PricedCosts& costs, const ir::Plan& plan, const ir::Action& action) {
  return costs.action(plan, plan.stages[static_cast<std::size_t>(std::max<int>(0, action.stage))].pp, action, nullptr);
}

// A block's products: 8 tokens x 2 x 2560 weights of matrices = 40960 operations; attention forward
// 2 x 8 tokens x 9 x 16 = 2304 more, in its backward 5760. The head: 2 x 8 x 16 x 64 = 16384 in each direction.
constexpr double kProducts = 40960, kForwardAttention = 2304, kBackwardAttention = 5760, kHeadProducts = 16384;

TEST(PricedCosts, ArithmeticByHand) {
  const ir::Plan plan = two_ranks();
  const auto costs = price(plan, fast_machine());  // fp32: 1000 operations a second, half of them reached
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::forward(0, 0)), (kProducts + kForwardAttention) / 500);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::forward(1, 0)), (kProducts + kForwardAttention + kHeadProducts) / 500);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::backward_input(1, 0)),
                   (kProducts + kBackwardAttention + kHeadProducts) / 500);
  // The embedding adds one row a token: 8 x 16 operations.
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::backward_weight(0, 0)), (kProducts + 128) / 500);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::backward(0, 0)), (2 * kProducts + kBackwardAttention + 128) / 500);
}

TEST(PricedCosts, FormatsHaveRatesOfTheirOwn) {
  ir::Plan plan = two_ranks();
  plan.settings.precision.compute = "bf16";
  EXPECT_DOUBLE_EQ(cost(*price(plan, fast_machine()), plan, ir::forward(0, 0)), (kProducts + kForwardAttention) / 2000);
}

TEST(PricedCosts, AUnitAloneAndAPair) {
  const ir::Plan plan = two_ranks();
  HardwareProfile profile = fast_machine();
  profile.overhead = 7;
  const auto costs = price(plan, profile);
  ir::Action block = ir::forward(1, 0);
  block.unit = 2;
  EXPECT_DOUBLE_EQ(cost(*costs, plan, block), 7 + (kProducts + kForwardAttention) / 500);
  const ir::Action forward = ir::forward(0, 1), backward = ir::backward(0, 0);
  EXPECT_DOUBLE_EQ(costs->action(plan, 0, forward, &backward),
                   cost(*costs, plan, forward) + cost(*costs, plan, backward));
}

// Where the memory is slow its bytes decide. Forward of rank 0: the embedding reads 8 rows and its ids and writes its
// output; the block reads its weights, writes and reads what it saves, and writes its output.
TEST(PricedCosts, MemoryByHand) {
  const ir::Plan plan = two_ranks();
  HardwareProfile profile = fast_machine();
  profile.matmul = {1e18, 1e18, 1e18};
  profile.memory_bandwidth = 100;
  const auto costs = price(plan, profile);
  const double embedding = kActivation + 2 * kEmbeddingSaved + kActivation;
  const double block = 4 * kBlock + 2 * kBlockSaved + kActivation;
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::forward(0, 0)), (embedding + block) / 100);
  // Weight gradients: the work once, the accumulators read and written; of the embedding 8 rows.
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::backward_weight(0, 0)),
                   (kEmbeddingWork + 8.0 * kActivation / 4 + kBlockWork + 8 * kBlock) / 100);
  // Gradients are written once by ZeroGrad, read and written by ClipGrad; AdamW reads them and reads and writes three
  // tensors. All are fp32.
  constexpr double kRank0 = kEmbedding + kBlock;
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::zero_grad(0)), 4 * kRank0 / 100);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::clip_grad(0)), 8 * kRank0 / 100);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::optimizer_step(0)), 28 * kRank0 / 100);
  ir::Plan bf16 = plan;
  bf16.settings.precision.compute = "bf16";
  EXPECT_DOUBLE_EQ(cost(*price(bf16, profile), bf16, ir::optimizer_step(0)), 30 * kRank0 / 100);
}

// Both moments of what a rank owns, 8 bytes an element, over the way to the host.
TEST(PricedCosts, MomentsGoOverTheHostLink) {
  for (const std::int64_t zero : {0, 1}) {
    ir::Plan plan = two_ranks();
    plan.settings.parallel.dp = 4;
    plan.settings.parallel.zero = zero;
    const auto costs = price(plan, fast_machine());  // 100 bytes a second
    for (const auto kind : {ir::ActionKind::ReloadOptimizer, ir::ActionKind::OffloadOptimizer}) {
      ir::Action move = ir::action(kind, 0);
      EXPECT_DOUBLE_EQ(cost(*costs, plan, move), 8.0 * (kEmbedding + kBlock) / (zero > 0 ? 4 : 1) / 100);
      move.unit = 1;
      EXPECT_DOUBLE_EQ(cost(*costs, plan, move), 8.0 * kBlock / (zero > 0 ? 4 : 1) / 100);
    }
  }
}

// A recompute leaves down out, 2 x 8 tokens x 16 x 32 of the products; that of the cheap slots runs attention, gate and
// up alone, and writes 8 x 16 and twice 8 x 32 floats from the others.
TEST(PricedCosts, RecomputesByHand) {
  constexpr double kDown = 8192, kDropped = 512 + 2 * 1024;
  const ir::Plan plan = two_ranks();
  ir::Action everything = ir::action(ir::ActionKind::Recompute, 1, 0), cheap = everything;
  everything.unit = cheap.unit = 2;
  cheap.slot = 1;
  const auto costs = price(plan, fast_machine());
  EXPECT_DOUBLE_EQ(cost(*costs, plan, everything), (kProducts - kDown + kForwardAttention) / 500);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, cheap), (2 * kDown + kForwardAttention) / 500);
  HardwareProfile slow = fast_machine();
  slow.matmul = {1e18, 1e18, 1e18};
  slow.memory_bandwidth = 100;
  EXPECT_DOUBLE_EQ(cost(*price(plan, slow), plan, everything), (4 * kBlock + 2 * kBlockSaved) / 100.0);
  EXPECT_DOUBLE_EQ(cost(*price(plan, slow), plan, cheap), (4 * kBlock + kBlockSaved + kDropped) / 100.0);
  // Of a measured forward they take their share.
  HardwareProfile measured = fast_machine();
  measured.measured.unit[static_cast<std::size_t>(ir::UnitKind::block)].forward = 10;
  EXPECT_DOUBLE_EQ(cost(*price(plan, measured), plan, everything),
                   10 * (kProducts - kDown + kForwardAttention) / (kProducts + kForwardAttention));
}

// Under ZeRO a replica clips and updates its part; the norm is summed in parts in any case, and gradients that
// accumulate over the step are zeroed whole.
TEST(PricedCosts, ReplicasDivideTheUpdate) {
  ir::Plan plan = two_ranks();
  plan.settings.parallel.dp = 4;
  plan.settings.batch.global *= 4;
  HardwareProfile profile = fast_machine();
  profile.memory_bandwidth = 100;
  constexpr double kRank0 = kEmbedding + kBlock;
  for (const std::int64_t zero : {0, 1, 3}) {
    plan.settings.parallel.zero = zero;
    const auto costs = price(plan, profile);
    const double part = zero > 0 ? kRank0 / 4 : kRank0;
    EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::clip_grad(0)), 8 * part / 100);
    EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::optimizer_step(0)), 28 * part / 100);
    EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::zero_grad(0)), 4 * kRank0 / 100);
    EXPECT_NEAR(costs->action(plan, 0, ir::grad_norm(), nullptr), kRank0 / 100, 1e-9);  // 4 bytes, a quarter each
  }
}

// What ZeRO sends is priced: half an all-reduce of the working copies, and of the fp32 gradients.
TEST(PricedCosts, GathersAndReductionsByHand) {
  ir::Plan plan = two_ranks();
  plan.settings.parallel.dp = 4;
  plan.settings.batch.global *= 4;
  plan.settings.precision.compute = "bf16";
  HardwareProfile profile = fast_machine();
  profile.links[0] = {3, 256};
  const auto costs = price(plan, profile);
  ir::Action gather = ir::action(ir::ActionKind::Unshard, 1);
  gather.group = ir::Group::dp_cp;
  gather.unit = 2;
  EXPECT_DOUBLE_EQ(cost(*costs, plan, gather), 2 * kBlock * 0.75 / 256 + 3 * 3);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::reduce_scatter(1)), 4 * (kBlock + kHead) * 0.75 / 256 + 3 * 3);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::all_reduce(1)), 2 * cost(*costs, plan, ir::reduce_scatter(1)));
}

TEST(PricedCosts, MessagesByHand) {
  ir::Plan plan = make_plan(Placement::Loop, 4, 1, 4, one_f_one_b(4, 4));
  HardwareProfile profile = fast_machine();
  profile.node_size = 2;
  profile.links[0] = {3, 256};
  profile.links[1] = {20, 64};
  const auto costs = price(plan, profile);
  EXPECT_DOUBLE_EQ(costs->transfer(plan, 0, 1, ir::send_forward(0, 0, 1)), 3 + kActivation / 256.0);
  EXPECT_DOUBLE_EQ(costs->transfer(plan, 1, 2, ir::send_forward(1, 0, 2)), 20 + kActivation / 64.0);
  // Two replicas: a node holds one pipeline rank, so every message crosses.
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global = 8;
  const auto wide = price(plan, profile);
  EXPECT_DOUBLE_EQ(wide->transfer(plan, 0, 1, ir::send_forward(0, 0, 1)), 20 + kActivation / 64.0);
  // All-reduce of the fp32 gradients over two replicas on one node: 2 x 1/2 of the buffer, 2 messages.
  EXPECT_DOUBLE_EQ(cost(*wide, plan, ir::all_reduce(1)), 4 * kBlock / 256.0 + 2 * 3);
  EXPECT_EQ(cost(*costs, plan, ir::all_reduce(1)), 0);  // alone
}

// bf16 to the member that sums, 2 bytes an element where fp32 takes 4; the sums of an all-reduce come back in fp32.
TEST(PricedCosts, GradientsSentInBf16) {
  ir::Plan plan = two_ranks();
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global *= 2;
  const HardwareProfile profile = fast_machine();
  const auto wide = price(plan, profile);
  EXPECT_EQ(wide->payload(ir::all_reduce(0)), 4 * (kEmbedding + kBlock));
  EXPECT_EQ(wide->payload(ir::reduce_scatter(0)), 4 * (kEmbedding + kBlock));
  plan.settings.precision.reduce = "bf16";
  const auto narrow = price(plan, profile);
  EXPECT_EQ(narrow->payload(ir::all_reduce(0)), 3 * (kEmbedding + kBlock));
  EXPECT_EQ(narrow->payload(ir::reduce_scatter(0)), 2 * (kEmbedding + kBlock));
  EXPECT_EQ(narrow->payload(ir::reduce_replica_grad(0)), 4 * (kEmbedding + kBlock));
}

// Two directions: ranks 1 and 2 add the gradients of stage 1, ranks 0 and 3 those of stages 0 and 3.
TEST(PricedCosts, ReplicasByHand) {
  const ir::Plan plan = make_plan(Placement::Bidirectional, 4, 1, 8, dualpipe(4, 8));
  HardwareProfile profile = fast_machine();
  profile.node_size = 4;
  profile.links[0] = {3, 256};
  profile.links[1] = {20, 64};
  const auto near = price(plan, profile);
  EXPECT_DOUBLE_EQ(cost(*near, plan, ir::reduce_replica_grad(1)), 4 * kBlock / 256.0 + 2 * 3);
  profile.node_size = 2;
  const auto far = price(plan, profile);
  EXPECT_DOUBLE_EQ(cost(*far, plan, ir::reduce_replica_grad(0)), 4 * (kEmbedding + kBlock) / 64.0 + 2 * 20);
  // Each of two ranks sends the whole buffer once: 2(n-1)/n = 1; each of four sends 2 x 3/4 of loss and norm, 40 bytes.
  const passes::Traffic traffic = passes::traffic(plan, plan.programs[0], *near);
  EXPECT_DOUBLE_EQ(traffic.collectives.in_node, 2 * 4 * (kEmbedding + 4 * kBlock + kHead) + 4 * 1.5 * 40);
  ir::DiagnosticSink sink;
  EXPECT_TRUE(passes::simulate(plan, plan.programs[0], *far, sink)) << sink.text();
}

TEST(PricedCosts, MeasuredTimesReplaceEstimates) {
  const ir::Plan plan = two_ranks();
  HardwareProfile profile = fast_machine();
  profile.overhead = 1;
  profile.measured.unit[static_cast<std::size_t>(ir::UnitKind::block)] = {.forward = 10, .input = 20, .weight = 30};
  profile.measured.unit[static_cast<std::size_t>(ir::UnitKind::embedding)].forward = 5;
  profile.measured.stage[1] = {.forward = 100, .backward = 300};
  profile.measured.optimizer = 77;
  profile.measured.p2p = 9;
  const auto costs = price(plan, profile);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::forward(0, 0)), 1 + 10 + 5);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::backward_input(0, 0)), 1 + 20);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::backward(0, 0)), 1 + 20 + 30 + 128.0 / 500);  // I + W
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::forward(1, 0)), 100);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::backward(1, 0)), 300);
  EXPECT_DOUBLE_EQ(cost(*costs, plan, ir::optimizer_step(0)), 77);
  ir::Action of_embedding = ir::optimizer_step(0);
  of_embedding.unit = 0;
  EXPECT_DOUBLE_EQ(cost(*costs, plan, of_embedding), 77.0 * kEmbedding / (kEmbedding + kBlock));
  EXPECT_DOUBLE_EQ(costs->transfer(plan, 0, 1, ir::send_forward(0, 0, 1)), 9);
}

TEST(PricedCosts, DividedUnitsAreRefused) {
  ir::Plan plan = two_ranks();
  plan.settings.parallel.tp = 2;
  ir::DiagnosticSink sink;
  EXPECT_FALSE(PricedCosts::create(plan, fast_machine(), sink));
  EXPECT_NE(sink.text().find("tp=2"), std::string::npos) << sink.text();
}

// arXiv 2401.10241, tables 5 and 9: times in ms of F, B, W and a message; bubble rates of 1F1B, ZB-H1, ZB-H2.
struct Published {
  int p, m;
  double f, b, w, comm, one_f_one_b, h1, h2;
};
constexpr Published kPublished[] = {
    {8, 24, 18.522, 18.086, 9.337, .601, .2431, .1585, .1083},
    {8, 32, 18.513, 18.086, 9.331, .626, .1985, .1242, .0837},
    {8, 24, 29.718, 29.444, 19.927, .527, .2347, .1323, .0698},
    {16, 48, 11.347, 11.248, 8.132, .377, .2552, .1397, .0672},
};

TEST(PricedCosts, MeasuredProfilesGiveThePublishedBubbles) {
  for (const Published& row : kPublished) {
    HardwareProfile profile = fast_machine();
    for (int s = 0; s < row.p; ++s) {
      profile.measured.stage[s] = {.forward = row.f * 1e-3, .input = row.b * 1e-3, .weight = row.w * 1e-3};
    }
    profile.measured.p2p = row.comm * 1e-3;
    const auto rate = [&](const Order& order) {
      const ir::Plan plan = make_plan(Placement::Loop, row.p, 1, row.m, order);
      ir::DiagnosticSink sink;
      const auto simulation = passes::simulate(plan, plan.programs[0], *price(plan, profile), sink,
                                               {passes::Communication::Asynchronous});
      EXPECT_TRUE(simulation) << sink.text();
      return simulation ? simulation->stage_span_bubble().over_total : 0;
    };
    EXPECT_NEAR(rate(one_f_one_b(row.p, row.m)), row.one_f_one_b, 5e-5);
    EXPECT_NEAR(rate(zb_h(row.p, row.m, 1)), row.h1, 5e-5);
    EXPECT_NEAR(rate(zb_h(row.p, row.m, 2)), row.h2, 5e-5);
  }
}

ir::Plan lowered(int p, int m, std::int64_t dp) {
  ir::Plan plan = make_plan(Placement::Loop, p, 1, m, one_f_one_b(p, m));
  plan.settings.parallel.dp = dp;
  plan.settings.batch.global = m * dp;
  ir::DiagnosticSink sink;
  EXPECT_TRUE(passes::lower_communication(plan.stages, plan.programs[0], sink)) << sink.text();
  plan.level = ir::Level::Communication;
  return plan;
}

// Three boundaries, 4 microbatches each way; nodes of 4 hold two pipeline ranks of two replicas.
TEST(Traffic, ByHand) {
  const ir::Plan plan = lowered(4, 4, 2);
  HardwareProfile profile = fast_machine();
  profile.node_size = 4;
  const auto costs = price(plan, profile);
  const passes::Traffic traffic = passes::traffic(plan, plan.programs[0], *costs);
  ASSERT_EQ(traffic.pairs.size(), 6u);
  for (const passes::PairTraffic& pair : traffic.pairs) {
    EXPECT_EQ(std::abs(pair.from - pair.to), 1);
    EXPECT_EQ(pair.messages, 4);
    EXPECT_EQ(pair.bytes, 4 * kActivation);
    EXPECT_EQ(pair.link == passes::LinkLevel::BetweenNodes, pair.from + pair.to == 3);  // 1 to 2 and back
  }
  EXPECT_EQ(traffic.p2p.in_node, 2 * 4 * 4 * kActivation);  // two replicas, four directions of 4 messages
  EXPECT_EQ(traffic.p2p.between_nodes, 2 * 2 * 4 * kActivation);
  // Gradients: each of the two replicas of a stage sends its fp32 gradients once (2(n-1)/n = 1), on one node. Loss (32
  // bytes) and norm (8) go over the world of 8: inside nodes of four 2 x 3/4, between the two 2 x 1/2 of a quarter.
  const double gradients = 2 * 4 * (kEmbedding + 4 * kBlock + kHead);
  EXPECT_DOUBLE_EQ(traffic.collectives.in_node, gradients + 8 * 1.5 * 40);
  EXPECT_DOUBLE_EQ(traffic.collectives.between_nodes, 8 * 10);
}

// Four replicas in two groups of two, each group a node. Each rank sends half of the gradients to its neighbour, then
// the sum of a half to the other node and, of the parameters, its half to its neighbour.
TEST(Traffic, ShardGroupsKeepWholeBuffersInsideNodes) {
  ir::Plan plan = lowered(1, 1, 4);
  plan.settings.parallel.zero = 2;
  plan.settings.parallel.shard = 2;
  ir::DiagnosticSink sink;
  ASSERT_TRUE(passes::run_units(plan, passes::PassOptions({}), sink)) << sink.text();
  HardwareProfile profile = fast_machine();
  profile.node_size = 2;
  const passes::Traffic traffic = passes::traffic(plan, plan.programs[0], *price(plan, profile));
  const double buffer = 4 * (kEmbedding + kBlock + kHead);  // bytes in fp32
  // Loss and norm, 40 bytes, over the world: as in ByHand, with two ranks on each of two nodes.
  EXPECT_DOUBLE_EQ(traffic.collectives.in_node, 4 * buffer / 2 + 4 * buffer / 2 + 4 * 40);
  EXPECT_DOUBLE_EQ(traffic.collectives.between_nodes, 4 * buffer / 2 + 4 * 20);
}

// ZeRO-3 gathers each unit before each use; what stays gathered is sent once.
TEST(Traffic, FallsWithResidents) {
  const auto bytes = [](const std::string& resident) {
    ir::Plan plan = lowered(1, 4, 2);
    plan.settings.parallel.zero = 3;
    plan.settings.parallel.resident = resident;
    ir::DiagnosticSink sink;
    EXPECT_TRUE(passes::run_units(plan, passes::PassOptions({}), sink)) << sink.text();
    const passes::Traffic traffic = passes::traffic(plan, plan.programs[0], *price(plan, fast_machine()));
    return traffic.collectives.in_node + traffic.collectives.between_nodes;
  };
  const double units = 4 * (kEmbedding + kBlock + kHead);  // one gather of each: both replicas send a half
  // 1F1B on one rank: the forward and the backward of the head follow each other, and the embedding's backward and next
  // forward.
  const double gathers = 4 * (5 * kEmbedding + 8 * kBlock + 4 * kHead);
  EXPECT_DOUBLE_EQ(bytes("") - bytes("1GiB"), gathers - units);
}

// 6P + 12Lhs operations a token, over the peak of all ranks.
TEST(Throughput, ByHand) {
  const ir::Plan plan = lowered(2, 2, 4);
  const auto result = passes::throughput(plan, plan.programs[0], fast_machine(), 10);
  EXPECT_EQ(result.tokens, 2 * 4 * 8);
  EXPECT_EQ(result.operations_per_token, 6.0 * (kEmbedding + 2 * kBlock + kHead) + 12 * 2 * 16 * 8);
  EXPECT_EQ(result.tokens_per_second, 6.4);
  EXPECT_DOUBLE_EQ(result.mfu, 6.4 * result.operations_per_token / (8 * 1000));
}

// The step ends with the reductions and the optimizer of the slowest rank, which no bubble counts.
TEST(PricedCosts, StepTimeHoldsTheOptimizer) {
  const ir::Plan plan = lowered(2, 4, 1);
  HardwareProfile profile = fast_machine();
  profile.measured.optimizer = 1000;
  ir::DiagnosticSink sink;
  const auto with = passes::simulate(plan, plan.programs[0], *price(plan, profile), sink);
  profile.measured.optimizer = 0;
  const auto without = passes::simulate(plan, plan.programs[0], *price(plan, profile), sink);
  ASSERT_TRUE(with && without) << sink.text();
  EXPECT_DOUBLE_EQ(with->makespan, without->makespan);
  EXPECT_NEAR(with->step_time - without->step_time, 1000, 1e-6);
}

}  // namespace
}  // namespace fem
