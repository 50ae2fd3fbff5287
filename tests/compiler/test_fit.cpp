// femc fit: the same winner as planning and simulating every setting, and plans that keep what it promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include <nlohmann/json.hpp>

#include "compiler/config_text.hpp"
#include "compiler/fit.hpp"
#include "compiler/fit_bounds.hpp"
#include "compiler/profile_reader.hpp"
#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/text.hpp"
#include "passes/manager.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr std::string_view kConfig = R"(
model: {layers: 6, hidden: 64, intermediate: 160, heads: 4, kv_heads: 2, vocab: 256}
parallel: {pp: 2, dp: 2}
schedule: {name: 1f1b}
batch: {global: 16, micro: 2, seq_len: 64}
precision: {compute: bf16}
)";

class Fit : public testing::Test {
 protected:
  Fit() {
    for (const char* name : {"1f1b", "gpipe", "zb_h1", "interleaved_zb", "dualpipe_v", "chimera"}) {
      std::string reason;
      schedules.write(std::string(name) + ".yaml", *read_text_file(folders().front() / (std::string(name) + ".yaml"),
                                                                   reason));
    }
    few = {schedules.path()};
    config = folder.write("run.yaml", std::string(kConfig));
  }

  Streams streams() { return {out, err}; }
  passes::HardwareProfile profile(const std::string& name) {
    ir::DiagnosticSink sink;
    return *load_profile(name, default_profile_folders(), sink);
  }
  Configuration configuration(std::vector<std::string> set = {}) {
    ir::DiagnosticSink sink;
    auto result = read_configuration(source(std::string(kConfig)), set, sink);
    if (!result) throw std::runtime_error(sink.text());
    return std::move(*result);
  }
  FitReport search(const Configuration& configuration, const FitRequest& request) {
    ir::DiagnosticSink sink;
    auto result = fit(configuration, few, request, sink);
    if (!result) throw std::runtime_error(sink.text());
    return std::move(*result);
  }
  // `femc plan` in the library's own words; empty where it fails.
  std::optional<ir::Plan> planned(const Configuration& configuration) {
    ir::DiagnosticSink sink;
    const auto schedule = load_schedule(configuration.settings().schedule.name, few, [](std::string) {}, sink);
    auto plan = schedule ? make_plan(configuration, *schedule, sink) : std::nullopt;
    if (!plan) return std::nullopt;
    const auto pipeline = passes::parse_pipeline(
        ir::SourceText("passes", passes::default_pipeline(configuration.settings())), sink);
    return pipeline && passes::run_pipeline(*pipeline, *plan, sink) ? plan : std::nullopt;
  }

  TemporaryFolder folder, schedules;
  ScheduleFolders few;
  std::string config;
  std::ostringstream out, err;
};

std::int64_t peak_of(const ir::Plan& plan) {
  std::int64_t most = 0;
  for (const ir::Program& program : plan.programs) {
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      most = std::max(most, ir::memory_peak(plan, program, r).bytes());
    }
  }
  return most;
}

double step_of(const ir::Plan& plan, const passes::HardwareProfile& profile) {
  ir::DiagnosticSink sink;
  const auto costs = passes::PricedCosts::create(plan, profile, sink);
  const auto result = costs ? passes::simulate(plan, plan.programs[0], *costs, sink) : std::nullopt;
  EXPECT_TRUE(result) << sink.text();
  return result ? result->step_time : 0;
}

// The overrides of every setting that four ranks and 16 sequences allow, written down without the search's own axes.
std::vector<std::vector<std::string>> every_setting(const std::string& limit) {
  std::vector<std::vector<std::string>> all;
  for (const int pp : {1, 2, 4}) {
    for (const int micro : {1, 2, 4, 8, 16}) {
      for (const char* schedule : {"1f1b", "gpipe", "zb_h1", "interleaved_zb", "dualpipe_v", "chimera"}) {
        for (const char* recompute : {"none", "selective", "full", "fit"}) {
          for (const char* sharding : {"0 step", "1 step", "2 step", "3 step", "2 microbatch", "3 microbatch"}) {
            if (limit.empty() && std::string_view(recompute) == "fit") continue;
            all.push_back({"parallel.pp=" + std::to_string(pp), "parallel.dp=" + std::to_string(4 / pp),
                           "batch.micro=" + std::to_string(micro), std::string("schedule.name=") + schedule,
                           std::string("memory.recompute=") + recompute,
                           std::string("parallel.zero=") + sharding[0],
                           std::string("parallel.reduce=") + (sharding + 2), "memory.limit=" + limit});
          }
        }
      }
    }
  }
  return all;
}

struct Best {
  std::vector<double> steps;  // of distinct plans that fit, ascending
  std::pair<double, std::int64_t> winner{1e300, 0};
};

TEST_F(Fit, FindsWhatPlanningEverythingFinds) {
  const std::array machines = {profile("laptop_cpu"), profile("cluster_16_nodes")};
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"1GiB", {}},
      {"7MiB", {}},
      {"3800kB", {}},
      {"5MiB", {"overlap.lanes=true"}},
      {"3800kB", {"memory.offload=optimizer"}},
      {"3800kB", {"memory.offload=all", "overlap.lanes=true"}}};
  for (const auto& [limit, others] : cases) {
    std::array<Best, 2> bests;
    for (auto& set : every_setting(limit)) {
      set.insert(set.end(), others.begin(), others.end());
      const auto plan = planned(configuration(set));
      if (!plan) continue;
      const std::int64_t peak = peak_of(*plan);
      EXPECT_LE(peak, *ir::parse_bytes(limit));
      for (std::size_t i = 0; i < machines.size(); ++i) {
        const double step = step_of(*plan, machines[i]);
        bests[i].winner = std::min(bests[i].winner, {step, peak});
        bests[i].steps.push_back(step);
      }
    }
    for (std::size_t m = 0; m < machines.size(); ++m) {
      SCOPED_TRACE(machines[m].name + " " + limit + " " + testing::PrintToString(others));
      Best& best = bests[m];
      ASSERT_FALSE(best.steps.empty());
      std::ranges::sort(best.steps);
      const auto equal = std::ranges::unique(best.steps);
      best.steps.erase(equal.begin(), equal.end());
      const FitReport report = search(configuration(others), {limit, {}, 5, machines[m]});
      ASSERT_FALSE(report.ranked.empty());
      EXPECT_EQ(report.ranked[0].step_time, best.winner.first) << text(report.ranked[0].choice);
      EXPECT_EQ(report.ranked[0].peak, best.winner.second) << text(report.ranked[0].choice);
      // Equal times may be ranked, each with a memory of its own, so that the last is no later than the fifth distinct.
      for (std::size_t i = 0; i < report.ranked.size(); ++i) {
        EXPECT_TRUE(std::ranges::binary_search(best.steps, report.ranked[i].step_time));
        EXPECT_LE(report.ranked[i].step_time, best.steps[std::min(i, best.steps.size() - 1)]);
      }
      EXPECT_LT(report.simulated, static_cast<std::int64_t>(every_setting(limit).size()) / 4);
    }
  }
}

// `fit` recomputes blocks that the other modes are told to leave alone.
TEST_F(Fit, AFittedPlanIsNotBoundByTheOtherModes) {
  const auto half = configuration({"memory.recompute_every=2"});
  const FitReport some = search(half, {"1000", {}, 1, profile("laptop_cpu")});
  ASSERT_TRUE(some.smallest);
  EXPECT_EQ(some.smallest->choice.recompute, "fit");
  EXPECT_EQ(some.smallest->bytes, search(configuration(), {"1000", {}, 1, profile("laptop_cpu")}).smallest->bytes);
  const FitReport one = search(half, {std::to_string(some.smallest->bytes), {}, 1, profile("laptop_cpu")});
  ASSERT_EQ(one.ranked.size(), 1u);
  EXPECT_EQ(one.ranked[0].choice.recompute, "fit");
}

TEST_F(Fit, NothingFitsNamesTheSmallestPeak) {
  std::int64_t smallest = INT64_MAX;
  for (const auto& set : every_setting("")) {
    const auto plan = planned(configuration(set));
    if (plan) smallest = std::min(smallest, peak_of(*plan));
  }
  for (const std::int64_t limit : {smallest - 1, smallest / 2, std::int64_t{1000}}) {
    const FitReport report = search(configuration(), {std::to_string(limit), {}, 10, profile("laptop_cpu")});
    EXPECT_TRUE(report.ranked.empty());
    ASSERT_TRUE(report.smallest);
    EXPECT_EQ(report.smallest->bytes, smallest) << text(report.smallest->choice);
  }
  const FitReport report = search(configuration(), {std::to_string(smallest), {}, 10, profile("laptop_cpu")});
  ASSERT_FALSE(report.ranked.empty());
  EXPECT_EQ(report.ranked.back().peak, smallest);
}

// Every setting is counted once: ranked or left out.
TEST_F(Fit, CountsAddUp) {
  for (const char* limit : {"1GiB", "3800kB", "1000"}) {
    const FitReport report = search(configuration(), {limit, {}, 7, profile("laptop_cpu")});
    auto sum = static_cast<std::int64_t>(report.ranked.size());
    for (const FitMissed& missed : report.missed) sum += missed.count;
    EXPECT_EQ(report.tried, 3 * 5 * 6 * 4 * 6);
    EXPECT_EQ(sum, report.tried) << limit;
  }
}

// What the bounds rule out without a plan, a plan would have ruled out.
TEST_F(Fit, BoundsHold) {
  const std::pair<const char*, const char*> cases[] = {{"laptop_cpu", "false"}, {"8_gpu_node", "true"}};
  for (const auto& [machine, lanes] : cases) {
    const passes::HardwareProfile rates = profile(machine);
    double tightest = 0;
    for (auto& set : every_setting("")) {
      set.push_back(std::string("overlap.lanes=") + lanes);
      const Configuration one = configuration(set);
      const auto plan = planned(one);
      if (!plan) continue;
      ir::DiagnosticSink sink;
      const auto schedule = load_schedule(one.settings().schedule.name, few, [](std::string) {}, sink);
      ir::Plan stages;
      stages.settings = plan->settings;
      stages.stages = plan->stages;
      stages.level = plan->level;
      const auto costs = passes::PricedCosts::create(stages, rates, sink);
      const int pp = static_cast<int>(one.settings().parallel.pp), slots = static_cast<int>(plan->stages.size()) / pp;
      const bool two_ways = schedule->placement == PlacementKind::Bidirectional;
      const Placement placement{schedule->placement, pp, two_ways ? 1 : slots};
      const double bound =
          StepBound{stages, placement, plan->programs[0].microbatches, schedule->split}.seconds(*costs);
      const double step = step_of(*plan, rates);
      EXPECT_LE(bound, step * (1 + 1e-9)) << testing::PrintToString(set);
      tightest = std::max(tightest, bound / step);
      EXPECT_LE(state_bytes(stages), peak_of(*plan));
    }
    EXPECT_GT(tightest, 0.9) << machine;
  }
}

TEST_F(Fit, TheWrittenConfigurationKeepsItsPromises) {
  FitArguments arguments{.config = config, .memory = "3800kB"};
  arguments.json = true;
  arguments.output = (folder.path() / "best.yaml").string();
  ASSERT_EQ(fit_command(arguments, few, streams()), kSuccess) << err.str();
  const Json first = Json::parse(out.str())["ranked"][0];
  PlanArguments plan;
  plan.config = *arguments.output;
  plan.output = (folder.path() / "best.fem").string();
  ASSERT_EQ(plan_command(plan, few, streams()), kSuccess) << err.str();
  out.str("");
  ASSERT_EQ(memory_command({.plan = *plan.output, .json = true}, streams()), kSuccess);
  const Json memory = Json::parse(out.str());
  std::int64_t peak = 0;
  for (const Json& rank : memory["ranks"]) peak = std::max(peak, rank["peak_bytes"].get<std::int64_t>());
  EXPECT_LE(peak, 3'800'000);
  EXPECT_EQ(first["peak_bytes"], peak);
  EXPECT_EQ(memory["ranks"][first["peak_rank"].get<std::size_t>()]["peak_bytes"], peak);
  out.str("");
  ASSERT_EQ(simulate_command({.plan = *plan.output, .json = true}, streams()), kSuccess);
  const Json simulated = Json::parse(out.str());
  EXPECT_EQ(simulated["step_seconds"], first["step_seconds"]);
  EXPECT_EQ(simulated["tokens_per_second"], first["tokens_per_second"]);
  EXPECT_EQ(simulated["makespan"]["bubble_over_total"], first["makespan_bubble_over_total"]);
  // The input with the keys of the table changed gives the same plan.
  plan.config = config;
  plan.output = (folder.path() / "same.fem").string();
  const auto set = [&](const std::string& key, const char* name) {
    const Json& value = first[name];
    plan.set.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  };
  set("parallel.pp", "pp"), set("parallel.dp", "dp"), set("batch.micro", "micro"), set("schedule.name", "schedule");
  set("memory.recompute", "recompute"), set("parallel.zero", "zero"), set("parallel.reduce", "reduce");
  plan.set.push_back("memory.limit=3800kB");
  ASSERT_EQ(plan_command(plan, few, streams()), kSuccess) << err.str();
  EXPECT_EQ(folder.read("same.fem"), folder.read("best.fem"));
}

TEST_F(Fit, FixedKeysStayAsConfigured) {
  FitRequest request{"1GiB", {"schedule.name", "parallel.zero"}, 50, profile("laptop_cpu")};
  for (const FitRow& row : search(configuration({"parallel.zero=3"}), request).ranked) {
    EXPECT_EQ(row.choice.schedule, "1f1b");
    EXPECT_EQ(row.choice.zero, 3);
  }
  request.fixed = {"parallel.dp", "batch.micro", "memory.recompute", "parallel.reduce"};
  // A pair that is no candidate of its own accord is one where it is configured.
  bool configured_pair = false;
  const auto set = configuration({"memory.recompute=full", "parallel.zero=1", "parallel.reduce=microbatch"});
  for (const FitRow& row : search(set, request).ranked) {
    EXPECT_EQ(row.choice.pp, 2);
    EXPECT_EQ(row.choice.micro, 2);
    EXPECT_EQ(row.choice.recompute, "full");
    EXPECT_EQ(row.choice.reduce, "microbatch");
    configured_pair = configured_pair || row.choice.zero == 1;
  }
  EXPECT_TRUE(configured_pair);
  // Fitting that recomputes nothing is no copy of `none` where `none` is not tried.
  request.fixed = {"memory.recompute"};
  const auto fitting = configuration({"memory.recompute=fit", "memory.limit=1MiB"});
  const FitReport fitted = search(fitting, request);
  ASSERT_FALSE(fitted.ranked.empty());
  EXPECT_EQ(fitted.ranked[0].choice.recompute, "fit");
  EXPECT_EQ(fitted.ranked[0].settings.memory.limit, "1GiB");
  request.memory = "1kB";
  EXPECT_EQ(search(fitting, request).smallest->choice.recompute, "fit");
  request.memory = "1GiB";
  // A schedule that is configured has its configured chunks, another its own.
  request.fixed = {"parallel.pp"};
  std::map<std::string, std::int64_t> chunks;
  const auto three = configuration({"schedule.name=interleaved_zb", "schedule.chunks=3"});
  for (const FitRow& row : search(three, request).ranked) chunks[row.choice.schedule] = row.settings.schedule.chunks;
  EXPECT_EQ(chunks.at("interleaved_zb"), 3);
  EXPECT_EQ(chunks.at("1f1b"), 0);
}

TEST_F(Fit, FaultsAreNamed) {
  const auto message = [&](FitArguments arguments, int code) {
    out.str("");
    err.str("");
    arguments.config = config;
    EXPECT_EQ(fit_command(arguments, few, streams()), code);
    return err.str();
  };
  EXPECT_THAT(message({.memory = "80gib"}, kDiagnosed),
              HasSubstr("--memory: error: '80gib' is not a number of bytes, did you mean '80GiB'?"));
  EXPECT_THAT(message({.memory = "plenty"}, kDiagnosed),
              HasSubstr("'plenty' is not a number of bytes, as 80GiB or 512MB"));
  EXPECT_THAT(message({.memory = "0"}, kDiagnosed), HasSubstr("a rank needs more than nothing"));
  EXPECT_THAT(message({.memory = "1GiB", .fix = {"schedule.nam"}}, kDiagnosed),
              HasSubstr("--fix: error: 'schedule.nam' is no key that is searched, did you mean 'schedule.name'?"));
  EXPECT_THAT(message({.memory = "1GiB", .set = {"parallel.tp=2"}}, kDiagnosed), HasSubstr("tp=2"));
  EXPECT_THAT(message({.memory = "1GiB", .set = {"schedule.name=zb_h9"}}, kDiagnosed),
              HasSubstr("there is no schedule 'zb_h9', did you mean 'zb_h1'?"));
  EXPECT_THAT(message({.memory = "1GiB", .set = {"batch.micro=0"}}, kDiagnosed),
              HasSubstr("batch.micro=0 must be between 1 and"));
  EXPECT_THAT(message({.memory = "1GiB", .set = {"memory.recompute_every=0"}}, kDiagnosed),
              HasSubstr("memory.recompute_every=0 must be between 1 and"));
  EXPECT_THAT(message({.memory = "1GiB", .set = {"memory.recompute_first=-3"}}, kDiagnosed),
              HasSubstr("memory.recompute_first=-3 must be between 0 and"));
  EXPECT_EQ(out.str(), "");
  EXPECT_THAT(message({.memory = "1MB"}, kDiagnosed),
              testing::ContainsRegex("run.yaml: error: nothing fits into 1MB: the smallest peak found is .* more, on "
                                     "rank .* with pp="));
  EXPECT_THAT(message({.memory = "1GiB", .set = {"batch.global=15"}, .fix = {"batch.micro,parallel.dp"}}, kDiagnosed),
              HasSubstr("none of the settings can be planned"));
  EXPECT_THAT(out.str(), HasSubstr("batch.global=15 is not a multiple of dp*micro=4; nearest: 12 or 16"));
  // Without --memory the configuration's limit counts, then the machine's capacity.
  message({.set = {"memory.limit=1GiB"}}, kSuccess);
  EXPECT_THAT(out.str(), HasSubstr("4 ranks with at most 1GiB each"));
  message({}, kSuccess);
  EXPECT_THAT(out.str(), HasSubstr("4 ranks with at most 4000000000 each"));
}

TEST_F(Fit, SaysTheSameTwice) {
  FitArguments arguments{.config = config, .memory = "7MiB"};
  ASSERT_EQ(fit_command(arguments, few, streams()), kSuccess);
  const std::string once = out.str();
  out.str("");
  ASSERT_EQ(fit_command(arguments, few, streams()), kSuccess);
  EXPECT_EQ(out.str(), once);
  EXPECT_THAT(once, HasSubstr("tried 2160 settings"));
  EXPECT_THAT(once, HasSubstr("refused by schedule chimera: needs an even number of pipeline ranks, p is 1"));
}

TEST(ConfigurationText, ReadsBackToTheSameSettings) {
  const std::vector<std::string> texts = {"", "a", "null", "~", "yes", "1.5", "a: b", "# no", "it's", "\"q\"", "\\x41",
                                          "tab\there", " padded ", "[1]", "{a}", "&x", "*x", "data/train", "80GiB"};
  for (const std::string& word : texts) {
    ir::Settings settings;
    settings.model = {.layers = 4, .hidden = 64, .intermediate = 128, .heads = 4, .vocab = 256};
    settings.batch = {.global = 8, .micro = 2, .seq_len = 16};
    settings.parallel.layers_per_stage = {1, 3};
    settings.data.train = word;
    settings.schedule.params = word;
    settings.optimizer.lr = 0.1 + 0.2;
    settings.model.tied = true;
    ir::DiagnosticSink sink;
    const auto back = read_configuration(source(configuration_text(settings)), {}, sink);
    ASSERT_TRUE(back) << sink.text() << configuration_text(settings);
    EXPECT_EQ(back->settings(), settings) << configuration_text(settings);
  }
}

}  // namespace
}  // namespace fem::compiler::test
