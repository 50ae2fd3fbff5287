// femc simulate and femc timeline as library functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "compiler/forecast.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class Simulate : public testing::Test {
 protected:
  Streams streams() { return {out, err}; }
  std::string plan(const std::string& config) {
    PlanArguments arguments;
    arguments.config = folder.write("run.yaml", config);
    arguments.output = (folder.path() / "run.fem").string();
    EXPECT_EQ(plan_command(arguments, folders(), streams()), kSuccess) << err.str();
    out.str("");
    return *arguments.output;
  }
  json simulate(SimulateArguments arguments) {
    arguments.json = true;
    EXPECT_EQ(simulate_command(arguments, streams()), kSuccess) << err.str();
    return json::parse(std::exchange(out, std::ostringstream()).str());
  }

  TemporaryFolder folder;
  std::ostringstream out, err;
};

// A profile in which a stage's forward takes 1 s, its whole backward 2 s, and everything else nothing.
const std::string kSlots = R"(name: slots
reference: arithmetic
matmul: {fp32: 1e24, bf16: 1e24, fp16: 1e24, efficiency: 1}
memory: {bandwidth: 1e24}
host: {bandwidth: 1e24}
overhead: 0
node_size: 2
links:
  in_node: {latency: 0, bandwidth: 1e24}
  between_nodes: {latency: 0, bandwidth: 1e24}
measured:
  stages: {0: {F: 1, B: 2}, 1: {F: 1, B: 2}, 2: {F: 1, B: 2}, 3: {F: 1, B: 2}}
)";

// 1F1B, p=4, m=8: (m + p - 1) slots of F + B = 33, bubble (p-1)/m over ideal and (p-1)/(m+p-1) over total time.
TEST_F(Simulate, JsonSaysTheClosedForms) {
  const std::string profile = folder.write("slots.yaml", kSlots);
  const json result = simulate({.plan = plan(config_text(8, 4, 8)), .profile = profile, .asynchronous = true});
  EXPECT_EQ(result["program"], "train");
  EXPECT_EQ(result["profile"], "slots");
  EXPECT_EQ(result["communication"], "asynchronous");
  EXPECT_EQ(result["pipeline_ranks"], 4);
  EXPECT_EQ(result["world_size"], 4);
  EXPECT_EQ(result["microbatches"], 8);
  EXPECT_EQ(result["tokens"], 8 * 16);
  EXPECT_NEAR(result["step_seconds"], 33, 1e-6);
  EXPECT_NEAR(result["tokens_per_second"], 8 * 16 / 33.0, 1e-6);
  EXPECT_NEAR(result["ideal_seconds"], 24, 1e-6);
  EXPECT_NEAR(result["heaviest_rank"]["share"], 0.25, 1e-9);  // four ranks with the same work
  EXPECT_NEAR(result["heaviest_rank"]["over_mean"], 1, 1e-9);
  EXPECT_NEAR(result["makespan"]["seconds"], 33, 1e-6);
  EXPECT_NEAR(result["makespan"]["bubble_over_ideal"], 3 / 8.0, 1e-6);
  EXPECT_NEAR(result["makespan"]["bubble_over_total"], 3 / 11.0, 1e-6);
  EXPECT_NEAR(result["stage_span"]["seconds"], 33, 1e-6);
  std::vector<int> in_flight;
  for (const json& rank : result["ranks"]) {
    in_flight.push_back(rank["peak_in_flight"]);
    EXPECT_NEAR(rank["busy_seconds"], 24, 1e-6);
    EXPECT_GT(rank["memory"]["peak_bytes"], rank["memory"]["parameters_bytes"]);
    EXPECT_TRUE(rank["memory"]["peak_action"].is_string());
  }
  EXPECT_THAT(in_flight, ElementsAre(4, 3, 2, 1));
}

// Both ways to run are told; waiting for the other side makes nothing faster.
TEST_F(Simulate, BothStepTimes) {
  const std::string profile = folder.write("slots.yaml", kSlots);
  const std::string file = plan(config_text(8, 4, 8));
  const json serial = simulate({.plan = file, .profile = profile});
  EXPECT_EQ(serial["communication"], "rendezvous");
  EXPECT_NEAR(serial["asynchronous_step_seconds"], 33, 1e-6);
  EXPECT_GE(serial["step_seconds"], serial["asynchronous_step_seconds"]);
}

// Messages of 16 tokens x 64 floats = 4096 bytes; nodes of two ranks: only 1-2 crosses.
TEST_F(Simulate, JsonSaysTheTraffic) {
  const std::string profile = folder.write("slots.yaml", kSlots);
  const json traffic = simulate({.plan = plan(config_text(8, 4, 8)), .profile = profile})["traffic"];
  EXPECT_EQ(traffic["p2p"]["in_node_bytes"], 4 * 8 * 4096);
  EXPECT_EQ(traffic["p2p"]["between_nodes_bytes"], 2 * 8 * 4096);
  ASSERT_EQ(traffic["pairs"].size(), 6u);
  const json first = {{"from", 0}, {"to", 1}, {"messages", 8}, {"bytes", 8 * 4096}, {"link", "in_node"}};
  EXPECT_EQ(traffic["pairs"][0], first);
  EXPECT_EQ(traffic["pairs"][2]["link"], "between_nodes");
}

// 2 blocks a rank of hidden 64, intermediate 128, 4 heads: 2*64 + 4*64*64 + 3*64*128 = 41088 parameters each; the
// embedding 256 x 64, the head 64 more. 4 bytes a parameter, and as much for gradients, twice for moments.
TEST_F(Simulate, TextShowsMemoryInMiB) {
  ASSERT_EQ(simulate_command({.plan = plan(config_text(8, 4, 8))}, streams()), kSuccess) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("program train on laptop_cpu: 4 pipeline ranks, dp=1, 8 microbatches of 1 x 16 "
                                   "tokens, fp32\nstep time "));
  // (2 * 41088 + 16384) * 4 / 2^20 = 0.376; 2 * 41088 * 4 / 2^10 = 321.
  EXPECT_THAT(out.str(), testing::ContainsRegex("   0        0 .* 385.00 KiB  385.00 KiB  770.00 KiB "));
  EXPECT_THAT(out.str(), testing::ContainsRegex("   1        1 .* 321.00 KiB  321.00 KiB  642.00 KiB "));
  EXPECT_THAT(out.str(), HasSubstr("\nmakespan "));
  EXPECT_THAT(out.str(), HasSubstr("\nstage span "));
  EXPECT_THAT(out.str(), HasSubstr("  rank 0 to 1: 8 messages, 32.00 KiB, inside a node\n"));
}

TEST_F(Simulate, APeakAboveTheCapacityIsSaid) {
  std::string profile = kSlots;
  profile.replace(profile.find("{bandwidth: 1e24}\nhost"), 17, "{bandwidth: 1e24, capacity: 1.5e6}");
  ASSERT_EQ(simulate_command({.plan = plan(config_text(8, 4, 8)), .profile = folder.write("small.yaml", profile)},
                             streams()),
            kSuccess);
  EXPECT_THAT(out.str(), HasSubstr("rank 0 needs more than the 1.43 MiB that this machine has for a rank"));
}

TEST_F(Simulate, FaultsAreNamed) {
  const std::string file = plan(config_text(8, 4, 8));
  EXPECT_EQ(simulate_command({.plan = file, .program = "trian"}, streams()), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("--program: error: the plan has no program 'trian', did you mean 'train'?"));
  EXPECT_EQ(simulate_command({.plan = file, .profile = "laptop"}, streams()), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("there is no profile 'laptop'"));
  EXPECT_EQ(out.str(), "");
}

TEST_F(Simulate, TimelineInSeconds) {
  TimelineArguments arguments;
  arguments.plan = plan(config_text(8, 4, 8));
  arguments.profile = folder.write("slots.yaml", kSlots);
  ASSERT_EQ(timeline_command(arguments, streams()), kSuccess) << err.str();
  EXPECT_THAT(out.str(),
              HasSubstr("program train: 4 ranks, 8 microbatches; on slots, communication holds up no rank\n"));
  EXPECT_THAT(out.str(), HasSubstr("makespan    33 s, bubble 9 s: 37.50% over ideal time, 27.27% over total time"));
  EXPECT_THAT(out.str(), HasSubstr("(one column is 305.6 ms)"));  // 33 s over 120 - 12 columns
}

TEST_F(Simulate, TimelineWritesPictures) {
  TimelineArguments arguments;
  arguments.plan = plan(config_text(8, 4, 8));
  arguments.rendezvous = true;
  arguments.html = (folder.path() / "t.html").string();
  arguments.trace = (folder.path() / "t.json").string();
  ASSERT_EQ(timeline_command(arguments, streams()), kSuccess) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("written: " + *arguments.html + "\nwritten: " + *arguments.trace + "\n"));
  EXPECT_THAT(folder.read("t.html"), HasSubstr("<canvas>"));
  EXPECT_FALSE(json::parse(folder.read("t.json"))["traceEvents"].empty());
  arguments.html = (folder.path() / "no" / "t.html").string();
  EXPECT_EQ(timeline_command(arguments, streams()), kRuntime);
  EXPECT_THAT(err.str(), HasSubstr("t.html: error: cannot write: "));
}

TEST(Words, SecondsAndBytes) {
  EXPECT_EQ(seconds_text(2.5), "2.5 s");
  EXPECT_EQ(seconds_text(0.0125), "12.5 ms");
  EXPECT_EQ(seconds_text(3e-6), "3 us");
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 20)), "3.00 MiB");
  EXPECT_EQ(bytes_text(1.25 * 1073741824), "1.25 GiB");
}

}  // namespace
}  // namespace fem::compiler::test
