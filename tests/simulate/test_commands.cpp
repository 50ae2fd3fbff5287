// femc simulate and femc timeline as library functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

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
  EXPECT_THAT(out.str(), testing::ContainsRegex("   0        0 .*     385 KiB     385 KiB     770 KiB "));
  EXPECT_THAT(out.str(), testing::ContainsRegex("   1        1 .*     321 KiB     321 KiB     642 KiB "));
  EXPECT_THAT(out.str(), HasSubstr("\nmakespan "));
  EXPECT_THAT(out.str(), HasSubstr("\nstage span "));
  EXPECT_THAT(out.str(), HasSubstr("  rank 0 to 1: 8 messages, 32.0 KiB, inside a node\n"));
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

// The plan of test_lanes.cpp: F=2, B=4, a message 5, and the times by hand that stand there.
std::string lane_profile() {
  std::string profile = kSlots;
  profile.replace(profile.find("  stages:"), std::string::npos,
                  "  stages: {0: {F: 2, B: 4}, 1: {F: 2, B: 4}}\n  p2p: 5\n");
  return profile;
}

TEST_F(Simulate, LanesAndTheirOverlap) {
  const std::string profile = folder.write("lanes.yaml", lane_profile());
  const json result = simulate({.plan = "tests/ir/lanes/1f1b.plan", .profile = profile});
  EXPECT_EQ(result["level"], "lane");
  EXPECT_NEAR(result["step_seconds"], 33, 1e-6);
  EXPECT_NEAR(result["serial_step_seconds"], 33, 1e-6);  // the backwards' messages decide, with lanes and without
  EXPECT_NEAR(result["ranks"][0]["overlap_seconds"], 2, 1e-6);
  EXPECT_NEAR(result["ranks"][1]["overlap_seconds"], 0, 1e-6);
  ASSERT_EQ(simulate_command({.plan = "tests/ir/lanes/1f1b.plan", .profile = profile}, streams()), kSuccess);
  EXPECT_THAT(out.str(),
              HasSubstr("step time   33 s (lanes side by side; 33 s with one action of a rank after the other)"));
  EXPECT_THAT(out.str(), HasSubstr("rank   stages       busy    waiting    overlap in flight "));
  EXPECT_THAT(out.str(), HasSubstr("   0        0       12 s       21 s        2 s         2 "));
}

TEST_F(Simulate, TimelineHasARowForEachLane) {
  TimelineArguments arguments;
  arguments.plan = "tests/ir/lanes/1f1b.plan";
  arguments.rendezvous = true;
  arguments.width = 33 + 23;  // a column a second
  arguments.profile = folder.write("lanes.yaml", lane_profile());
  arguments.trace = (folder.path() / "t.json").string();
  ASSERT_EQ(timeline_command(arguments, streams()), kSuccess) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("rank 0 compute    FFFF..............BBBB.......BBBB\n"
                                   "rank 0 p2p        ..sssss......&&&&&......rrrrr....\n"
                                   "rank 1 compute    .......FFBBBB.....FFBBBB.........\n"
                                   "rank 1 p2p        ..rrrrr......&&&&&......sssss....\n"
                                   "(s, r: messages; "));
  EXPECT_THAT(out.str(),
              HasSubstr("rank 0      busy 12 s, waiting 21 s, 2 s beside communication, at most 2 in flight"));
  std::map<std::pair<int, int>, int> events;  // by rank and lane
  const json trace = json::parse(folder.read("t.json"));
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") ++events[{event["pid"], event["tid"]}];
  }
  EXPECT_EQ((events[{0, 0}]), 7);  // the actions of the file: computation, messages, reductions
  EXPECT_EQ((events[{0, 1}]), 3);
  EXPECT_EQ((events[{0, 2}]), 3);
  EXPECT_EQ((events[{1, 1}]), 3);
  // Without --rendezvous messages take no time, and a rank has one row.
  arguments.rendezvous = false;
  out.str("");
  ASSERT_EQ(timeline_command(arguments, streams()), kSuccess) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("\nrank 0 FFFF"));
}

TEST(Words, Seconds) {
  EXPECT_EQ(seconds_text(2.5), "2.5 s");
  EXPECT_EQ(seconds_text(0.0125), "12.5 ms");
  EXPECT_EQ(seconds_text(3e-6), "3 us");
  EXPECT_EQ(seconds_text(0), "0 s");
}

}  // namespace
}  // namespace fem::compiler::test
