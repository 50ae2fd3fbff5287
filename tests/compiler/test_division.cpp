// Blocks divided over the stages by cost: against every division of small models, and through the planner.
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/division.hpp"
#include "compiler/forecast.hpp"
#include "compiler/sizes.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using Blocks = std::vector<std::int64_t>;
// The most expensive rank, the most expensive part, the sum of squares over the parts.
using Price = std::array<std::int64_t, 3>;

Price price(const Blocks& blocks, const Placement& placement, const DivisionCosts& costs) {
  const auto part_cost = [&](int part) {
    const bool first = part == 0, last = part + 1 == placement.p * placement.v;
    return blocks[static_cast<std::size_t>(part)] * costs.block + first * costs.embedding + last * costs.head;
  };
  Price result{};
  for (int rank = 0; rank < placement.p; ++rank) {
    std::int64_t sum = 0;
    for (int slot = 0; slot < placement.slots(); ++slot) sum += part_cost(placement.part(placement.stage(rank, slot)));
    result[0] = std::max(result[0], sum);
  }
  for (int part = 0; part < placement.p * placement.v; ++part) {
    result[1] = std::max(result[1], part_cost(part));
    result[2] += part_cost(part) * part_cost(part);
  }
  return result;
}

// The least price over all divisions that leave at most the first and the last part without a block.
Price least_price(std::int64_t layers, const Placement& placement, const DivisionCosts& costs) {
  const auto parts = static_cast<std::size_t>(placement.p * placement.v);
  Price best;
  best.fill(std::numeric_limits<std::int64_t>::max());
  Blocks blocks(parts, 0);
  const auto visit = [&](const auto& self, std::size_t part, std::int64_t left) -> void {
    if (part + 1 == parts) {
      blocks[part] = left;
      best = std::min(best, price(blocks, placement, costs));
      return;
    }
    for (blocks[part] = part == 0 ? 0 : 1; blocks[part] <= left; ++blocks[part]) {
      self(self, part + 1, left - blocks[part]);
    }
  };
  visit(visit, 0, layers);
  return best;
}

TEST(Division, IsTheBestOfAllDivisions) {
  int cases = 0, uneven = 0;
  for (const Placement& shape : {Placement{PlacementKind::Loop, 1, 1}, Placement{PlacementKind::Loop, 1, 2},
                                 Placement{PlacementKind::V, 1, 2}, Placement{PlacementKind::Bidirectional, 1, 1}}) {
    for (int p = 1; p <= 4; ++p) {
      const Placement placement{shape.kind, p, shape.v};
      const int parts = p * shape.v;
      for (std::int64_t layers = std::max(1, parts - 2); layers <= 9; ++layers) {
        for (const DivisionCosts& costs :
             {DivisionCosts{1, 0, 0}, DivisionCosts{10, 0, 7}, DivisionCosts{10, 3, 25}, DivisionCosts{10, 10, 10},
              DivisionCosts{3, 20, 1}, DivisionCosts{7, 0, 100}, DivisionCosts{4, 9, 9}}) {
          const Blocks blocks = divide_by_cost(layers, placement, costs);
          ASSERT_EQ(blocks.size(), static_cast<std::size_t>(parts));
          ASSERT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}), layers);
          EXPECT_EQ(price(blocks, placement, costs), least_price(layers, placement, costs))
              << name(placement.kind) << " p=" << p << " v=" << shape.v << " layers=" << layers << " costs "
              << costs.block << "," << costs.embedding << "," << costs.head << ": " << testing::PrintToString(blocks);
          ++cases;
          uneven += blocks.front() != blocks.back();
        }
      }
    }
  }
  EXPECT_GT(cases, 500);
  EXPECT_GT(uneven, 100);
}

TEST(Division, PartsWithoutBlocksAreTheFirstAndTheLastAlone) {
  const Placement placement{PlacementKind::Loop, 4, 1};
  EXPECT_EQ(divide_by_cost(8, placement, {10, 1000, 1000}), (Blocks{0, 4, 4, 0}));
  EXPECT_EQ(divide_by_cost(2, placement, {10, 0, 0}), (Blocks{0, 1, 1, 0}));
}

// Where no unit but the blocks costs anything it is the even division, remainders in the same place.
TEST(Division, EqualCostsAreDividedEvenly) {
  for (int p = 1; p <= 7; ++p) {
    for (int layers = p; layers <= 20; ++layers) {
      ir::DiagnosticSink sink;
      const auto even = read_configuration(source(config_text(layers, p, 8)), {}, sink);
      EXPECT_EQ(divide_by_cost(layers, {PlacementKind::Loop, p, 1}, {5, 0, 0}), divide_layers(*even, p, sink).value())
          << "p=" << p << " layers=" << layers;
    }
  }
}

// On a rank with several stages their sum counts: in a V the first and the last stage share rank 0.
TEST(Division, SumsOfARankComeFirst) {
  EXPECT_EQ(divide_by_cost(6, {PlacementKind::V, 2, 2}, {1, 0, 0}), (Blocks{2, 2, 1, 1}));
  EXPECT_EQ(divide_by_cost(8, {PlacementKind::V, 2, 2}, {2, 1, 3}), (Blocks{2, 3, 2, 1}));  // 5 + 5 and 6 + 4
}

TEST(Division, LargeModelsTakeNoTime) {
  const Blocks blocks = divide_by_cost(30000, {PlacementKind::Loop, 1024, 4}, {1'000'000, 123'456, 4'567'890});
  EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}), 30000);
}

// Operations of a block against those of the head: hidden 64, intermediate 128, 4 heads of 16, 16 tokens a microbatch.
//   matrix products: 2 * 16 * 64 * (2 * 8 * 16 + 3 * 128) = 1310720 in each of three passes
//   attention: 2 and 5 times 16 * 17 * 64 = 17408
//   head: 2 * 16 * 64 * vocab in each of three passes; embedding: 16 * 64 additions
TEST(Division, ArithmeticIsThatOfTheUnits) {
  ir::DiagnosticSink sink;
  const auto configuration =
      read_configuration(source(config_text(8, 4, 8)), std::vector<std::string>{"model.vocab=4096"}, sink);
  const DivisionCosts costs = division_costs(configuration->settings(), nullptr);
  EXPECT_EQ(costs.block, 1'000'000);
  const double block = 3.0 * 1310720 + 7 * 17408;
  EXPECT_EQ(costs.embedding, std::llround(1e6 * 16 * 64 / block));
  EXPECT_EQ(costs.head, std::llround(1e6 * 3 * 2 * 16 * 64 * 4096 / block));  // 6.2 blocks
}

std::optional<ir::Plan> plan(int layers, int pp, std::vector<std::string> set, ir::DiagnosticSink& sink,
                             const std::string& name = "1f1b") {
  set.push_back("schedule.name=" + name);
  const auto configuration = read_configuration(source(config_text(layers, pp, 8), "run.yaml"), set, sink);
  return configuration ? make_plan(*configuration, schedule(name), sink) : std::nullopt;
}

std::vector<int> units(const ir::Plan& plan) {
  std::vector<int> result;
  for (const ir::Stage& stage : plan.stages) result.push_back(stage.units);
  return result;
}

// The head costs 6.2 blocks (see above): alone on its rank, with the blocks on the other three.
TEST(Division, ThePlannerDividesByArithmetic) {
  ir::DiagnosticSink sink;
  const auto even = plan(8, 4, {"model.vocab=4096"}, sink);
  const auto cost = plan(8, 4, {"model.vocab=4096", "parallel.division=cost"}, sink);
  ASSERT_TRUE(even && cost) << sink.text();
  EXPECT_EQ(units(*even), (std::vector<int>{3, 2, 2, 3}));
  EXPECT_EQ(units(*cost), (std::vector<int>{3, 3, 3, 1}));
  // Shares of 8 + 6.2 blocks: the heaviest rank has 8.2 of them, then 6.2.
  const HeaviestRank a = heaviest_rank(arithmetic_shares(*even)), b = heaviest_rank(arithmetic_shares(*cost));
  EXPECT_EQ(a.rank, 3u);
  EXPECT_EQ(b.rank, 3u);
  EXPECT_NEAR(a.share, 8.2 / 14.2, 2e-3);
  EXPECT_NEAR(b.share, 6.2 / 14.2, 2e-3);
  EXPECT_NEAR(a.over_mean, 4 * a.share, 1e-12);
}

constexpr const char* kMeasured =
    "name: measured\nreference: this test\nmatmul: {fp32: 1e12, bf16: 1e12, fp16: 1e12, efficiency: 1}\n"
    "memory: {bandwidth: 1e12}\nhost: {bandwidth: 1e12}\noverhead: 0\nnode_size: 2\n"
    "links: {in_node: {latency: 0, bandwidth: 1e12}, between_nodes: {latency: 0, bandwidth: 1e12}}\n"
    "measured:\n  block: {F: 1, B: 2}\n  embedding: {F: 1, B: 0.5}\n  head: {F: 4, B: 8}\n";

// Measured: a block 3, the embedding 1.5, the head 12 seconds. 12 blocks on 4 ranks: 13.5, 12, 12, 12 with 4, 4, 4, 0.
TEST(Division, MeasurementsOfAProfileCount) {
  TemporaryFolder folder;
  const std::string profile = folder.write("measured.yaml", kMeasured);
  ir::DiagnosticSink sink;
  const auto p = plan(12, 4, {"parallel.division=cost", "parallel.profile=" + profile}, sink);
  ASSERT_TRUE(p) << sink.text();
  EXPECT_EQ(units(*p), (std::vector<int>{5, 4, 4, 1}));
  EXPECT_EQ(p->settings.parallel.profile, profile);
}

TEST(Division, FaultsNameTheValues) {
  struct Fault {
    int layers, pp;
    std::vector<std::string> set;
    std::string message;
  };
  for (const Fault& row : std::vector<Fault>{
           {8,
            4,
            {"parallel.division=cots"},
            "parallel.division: 'cots' is not one of even|cost, did you mean 'cost'?"},
           {8, 4,
            {"parallel.division=cost", "parallel.layers_per_stage=2,2,2,2"},
            "parallel.division=cost and parallel.layers_per_stage=[2, 2, 2, 2] both divide the layers; leave one of "
            "them out"},
           {5, 8,
            {"parallel.division=cost"},
            "model.layers=5 is less than the 6 of 8 stages (pp=8 x chunks=1) that need a block; nearest: 6 (or fewer "
            "ranks or chunks)"},
           {8, 4,
            {"parallel.division=cost", "parallel.profile=laptop_gpu"},
            "there is no profile 'laptop_gpu', did you mean 'laptop_cpu'?; available: 8_gpu_node, cluster_16_nodes, "
            "laptop_cpu (or a path to a .yaml file)"}}) {
    ir::DiagnosticSink sink;
    EXPECT_FALSE(plan(row.layers, row.pp, row.set, sink)) << row.message;
    ASSERT_FALSE(sink.all().empty());
    EXPECT_EQ(sink.all()[0].message, row.message);
    EXPECT_GT(sink.all()[0].where.line, 0) << row.message;
  }
}

// The heaviest rank, not the mean (by which an estimate of uneven stages is too low).
TEST(Division, TheHeaviestRankIsReported) {
  const HeaviestRank heaviest = heaviest_rank(std::vector<double>{1, 4, 3});
  EXPECT_EQ(heaviest.rank, 1u);
  EXPECT_DOUBLE_EQ(heaviest.share, 0.5);
  EXPECT_DOUBLE_EQ(heaviest.over_mean, 1.5);
}

}  // namespace
}  // namespace fem::compiler::test
