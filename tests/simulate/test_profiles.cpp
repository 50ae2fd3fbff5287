// Hardware profiles: those that ship, and every way to write a wrong one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/profile_reader.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ProfileFolders profiles() { return {std::filesystem::path(FEM_SOURCE) / "compiler/profiles"}; }

TEST(Profiles, AllThatShipAreRead) {
  const auto names = profile_names(profiles());
  EXPECT_THAT(names, ElementsAre("8_gpu_node", "cluster_16_nodes", "laptop_cpu"));
  for (const std::string& name : names) {
    ir::DiagnosticSink sink;
    const auto profile = load_profile(name, profiles(), sink);
    ASSERT_TRUE(profile) << sink.text();
    EXPECT_EQ(profile->name, name);
    EXPECT_EQ(profile->node_size, 8);
    EXPECT_GT(profile->memory_capacity, 0);
  }
}

// Data sheet of the H100 SXM: 989.4 TFLOP/s in bf16 without sparsity, 3.35 TB/s; NVLink 900 GB/s in both directions
// together; one ConnectX-7 of 400 Gb/s for each GPU.
TEST(Profiles, FiguresOfTheCluster) {
  ir::DiagnosticSink sink;
  const auto profile = load_profile("cluster_16_nodes", profiles(), sink);
  ASSERT_TRUE(profile) << sink.text();
  EXPECT_EQ(profile->matmul_peak(passes::NumberFormat::bf16), 989.4e12);
  EXPECT_EQ(profile->matmul_peak(passes::NumberFormat::fp32), 67e12);
  EXPECT_EQ(profile->memory_bandwidth, 3.35e12);
  EXPECT_EQ(profile->link(passes::LinkLevel::InNode).bandwidth, 900e9 / 2);
  EXPECT_EQ(profile->link(passes::LinkLevel::BetweenNodes).bandwidth, 400e9 / 8);
}

const std::string kGood = R"(name: mine
reference: measured
matmul: {fp32: 1e9, bf16: 2e9, fp16: 2e9, efficiency: 0.5}
memory: {bandwidth: 1e9}
host: {bandwidth: 1e8}
overhead: 0
node_size: 4
links:
  in_node: {latency: 0, bandwidth: 1e9}
  between_nodes: {latency: 1e-5, bandwidth: 1e8}
)";

std::string problem(const std::string& text) {
  ir::DiagnosticSink sink;
  EXPECT_FALSE(read_profile(source(text, "mine.yaml"), sink));
  return sink.text();
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Profiles, MeasuredTimes) {
  ir::DiagnosticSink sink;
  const auto profile = read_profile(source(kGood + R"(measured:
  block: {F: 0.5, I: 0.25, W: 0.125, B: 0.375}
  stages:
    3: {F: 2}
  optimizer: 4
  p2p: 1e-3
)"), sink);
  ASSERT_TRUE(profile) << sink.text();
  const passes::PassTimes& block = profile->measured.unit[static_cast<std::size_t>(ir::UnitKind::block)];
  EXPECT_EQ(block.forward, 0.5);
  EXPECT_EQ(block.input, 0.25);
  EXPECT_EQ(block.weight, 0.125);
  EXPECT_EQ(block.backward, 0.375);
  EXPECT_EQ(profile->measured.stage.at(3).forward, 2);
  EXPECT_FALSE(profile->measured.stage.at(3).input);
  EXPECT_EQ(profile->measured.optimizer, 4);
  EXPECT_EQ(profile->measured.p2p, 1e-3);
}

TEST(Profiles, WrongOnesAreNamed) {
  EXPECT_THAT(problem(with("host:", "hots:")),
              HasSubstr("mine.yaml:5:1: error: unknown key 'hots' in a profile, did you mean 'host'?"));
  EXPECT_THAT(problem(with("name: mine\n", "")), HasSubstr("a profile needs 'name'"));
  EXPECT_THAT(problem(with("fp16: 2e9, ", "")), HasSubstr("mine.yaml:3:9: error: matmul needs 'fp16'"));
  EXPECT_THAT(problem(with("fp32: 1e9", "fp32: fast")),
              HasSubstr("mine.yaml:3:16: error: matmul.fp32 is 'fast', not a number above 0"));
  EXPECT_THAT(problem(with("efficiency: 0.5", "efficiency: 1.5")),
              HasSubstr("matmul.efficiency is '1.5', not a number above 0 and at most 1"));
  EXPECT_THAT(problem(with("overhead: 0", "overhead: -1")), HasSubstr("overhead is '-1', not a number, 0 or above"));
  EXPECT_THAT(problem(with("overhead: 0", "overhead: [0]")), HasSubstr("overhead must be a value, found a list"));
  EXPECT_THAT(problem(with("node_size: 4", "node_size: 0")), HasSubstr("node_size is '0', not an integer from 1 to"));
  EXPECT_THAT(problem(with("node_size: 4", "node_size: 4\nnode_size: 8")), HasSubstr("key 'node_size' stands twice"));
  EXPECT_THAT(problem(with("bandwidth: 1e9}\nhost", "bandwidth: nan}\nhost")), HasSubstr("memory.bandwidth is 'nan'"));
  EXPECT_THAT(problem(with("  in_node", "  innode")),
              HasSubstr("unknown key 'innode' in links, did you mean 'in_node'?"));
  EXPECT_THAT(problem(with("latency: 1e-5, ", "")), HasSubstr("links.between_nodes needs 'latency'"));
  EXPECT_THAT(problem(kGood + "measured: {blok: {F: 1}}\n"), HasSubstr("did you mean 'block'?"));
  EXPECT_THAT(problem(kGood + "measured: {block: {G: 1}}\n"), HasSubstr("unknown key 'G' in measured.block"));
  EXPECT_THAT(problem(kGood + "measured: {stages: {first: {F: 1}}}\n"),
              HasSubstr("a stage of measured.stages is 'first', not an integer from 0"));
  EXPECT_THAT(problem("- a list\n"), HasSubstr("a profile must be a map, found a list"));
  EXPECT_THAT(problem("name: [\n"), HasSubstr("not YAML"));
}

TEST(Profiles, ANameThatIsNotThere) {
  ir::DiagnosticSink sink;
  EXPECT_FALSE(load_profile("laptop_gpu", profiles(), sink));
  EXPECT_THAT(sink.text(),
              HasSubstr("--profile: error: there is no profile 'laptop_gpu', did you mean 'laptop_cpu'?; available: "
                        "8_gpu_node, cluster_16_nodes, laptop_cpu (or a path to a .yaml file)"));
  sink.clear();
  EXPECT_FALSE(load_profile("no/such.yaml", profiles(), sink));
  EXPECT_THAT(sink.text(), HasSubstr("cannot read the profile 'no/such.yaml': No such file or directory"));
}

}  // namespace
}  // namespace fem::compiler::test
