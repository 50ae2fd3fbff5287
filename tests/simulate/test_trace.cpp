// The trace and the page, read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "compiler/timeline_html.hpp"
#include "compiler/timeline_trace.hpp"
#include "ir/text.hpp"
#include "passes/communication.hpp"
#include "small_model.hpp"

namespace fem {
namespace {

using namespace test;
using nlohmann::json;

struct Picture {
  ir::Plan plan;
  passes::Simulation simulation;
  std::vector<passes::RankMemory> memory;
};

Picture picture() {
  Picture result{make_plan(Placement::V, 2, 2, 4, zb_v_2_4()), {}, {}};
  ir::DiagnosticSink sink;
  EXPECT_TRUE(passes::lower_communication(result.plan.stages, result.plan.programs[0], sink)) << sink.text();
  result.plan.level = ir::Level::Communication;
  auto simulation = passes::simulate(result.plan, result.plan.programs[0], passes::UnitCosts(2, 3, 1, 0.5), sink);
  EXPECT_TRUE(simulation) << sink.text();
  result.simulation = std::move(*simulation);
  result.memory = passes::memory_timeline(result.plan, result.plan.programs[0], result.simulation);
  return result;
}

std::size_t batches(const std::vector<ir::Action>& actions) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < actions.size(); i += ir::batch_size(actions, i)) ++n;
  return n;
}

bool is_schedule(const std::string& name) { return name.starts_with("Forward") || name.starts_with("Backward"); }

TEST(Trace, DurationsSumToTheBusyTime) {
  const Picture p = picture();
  const json trace = json::parse(compiler::timeline_trace(p.plan, p.plan.programs[0], p.simulation, p.memory, 1e6));
  std::map<int, double> busy;
  std::map<int, std::size_t> events;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    ++events[e["pid"]];
    if (is_schedule(e["name"])) busy[e["pid"]] += e["dur"].get<double>();
    EXPECT_EQ(e["args"]["action"].get<std::string>().substr(0, e["name"].get<std::string>().size()), e["name"]);
    EXPECT_EQ(e["cat"], ir::name(static_cast<ir::Lane>(e["tid"].get<int>())));
  }
  for (int r = 0; r < 2; ++r) {
    EXPECT_NEAR(busy[r], p.simulation.ranks[static_cast<std::size_t>(r)].busy * 1e6, 0.01);
    EXPECT_EQ(events[r], batches(p.plan.programs[0].ranks[static_cast<std::size_t>(r)].actions));
  }
}

// Both ends of a flow lie in the send's and the receive's events, and there is one for each message.
TEST(Trace, FlowsConnectSendsAndReceives) {
  const Picture p = picture();
  const json trace = json::parse(compiler::timeline_trace(p.plan, p.plan.programs[0], p.simulation, p.memory, 1e6));
  std::map<int, json> starts, ends;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "s" && e["ph"] != "f") continue;
    EXPECT_TRUE((e["ph"] == "s" ? starts : ends).emplace(e["id"].get<int>(), e).second) << e.dump();
  }
  // Stages 0 3 | 1 2: 0 to 1 and 2 to 3 cross, in both directions, for 4 microbatches.
  EXPECT_EQ(starts.size(), 16u);
  EXPECT_EQ(ends.size(), 16u);
  for (const auto& [id, start] : starts) {
    const json& end = ends.at(id);
    EXPECT_NE(start["pid"], end["pid"]);
    EXPECT_LE(start["ts"], end["ts"]);
    for (const json& side : {start, end}) {
      bool inside = false;
      for (const json& e : trace["traceEvents"]) {
        inside = inside || (e["ph"] == "X" && e["pid"] == side["pid"] && e["tid"] == side["tid"] &&
                            e["ts"] <= side["ts"] && side["ts"] <= e["ts"].get<double>() + e["dur"].get<double>());
      }
      EXPECT_TRUE(inside) << side.dump();
    }
  }
}

TEST(Trace, MemoryIsACounter) {
  const Picture p = picture();
  const json trace = json::parse(compiler::timeline_trace(p.plan, p.plan.programs[0], p.simulation, p.memory, 1e6));
  std::map<int, std::int64_t> peak;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] == "C") peak[e["pid"]] = std::max(peak[e["pid"]], e["args"]["bytes"].get<std::int64_t>());
  }
  EXPECT_EQ(peak[0], p.memory[0].peak);
  EXPECT_EQ(peak[1], p.memory[1].peak);
}

TEST(Html, DataHoldsEveryActionWithItsText) {
  const Picture p = picture();
  const std::string page = compiler::timeline_html(p.plan, p.plan.programs[0], p.simulation, p.memory,
                                                   {"a </script> & more", {"figure <1>"}, false});
  const std::string mark = "id=\"data\">";
  const std::size_t begin = page.find(mark) + mark.size();
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["title"], "a </script> & more");
  EXPECT_EQ(data["figures"][0], "figure <1>");
  for (std::size_t r = 0; r < 2; ++r) {
    const std::vector<ir::Action>& actions = p.plan.programs[0].ranks[r].actions;
    std::multiset<std::string> expected, found;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t size = ir::batch_size(actions, i);
      expected.insert(ir::action_text(std::span(actions).subspan(i, size)));
      i += size;
    }
    for (const json& row : data["ranks"][r]["rows"]) {
      for (const json& item : row["items"]) {
        std::string text = data["patterns"][item[2].get<std::size_t>()];
        for (std::size_t m = 3; m < item.size(); ++m) {
          text.replace(text.find('#'), 1, std::to_string(item[m].get<int>()));
        }
        found.insert(text);
      }
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(data["ranks"][r]["peak"], p.memory[r].peak);
    EXPECT_EQ(data["ranks"][r]["memory"].size(), p.memory[r].points.size());
  }
}

// Nothing is fetched from anywhere.
TEST(Html, StandsAlone) {
  const Picture p = picture();
  const std::string page =
      compiler::timeline_html(p.plan, p.plan.programs[0], p.simulation, p.memory, {"t", {}, false});
  for (const char* outside : {"://", "src=", "<link", "@import", "url(", "fetch(", "import("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
}

}  // namespace
}  // namespace fem
