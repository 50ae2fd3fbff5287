// Every file of bad/ names in its first line the invariant that it breaks: "# expect: V07 part of the message".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "ir/text.hpp"
#include "ir/verify.hpp"

namespace fem::ir::testing {
namespace {

struct BadPlan {
  std::string file, code, message, text;
};

void PrintTo(const BadPlan& bad, std::ostream* out) { *out << bad.file; }

std::vector<BadPlan> bad_plans() {
  std::vector<BadPlan> plans;
  for (const auto& entry : std::filesystem::directory_iterator(FEM_TEST_DATA "/bad")) {
    std::ifstream in(entry.path());
    std::stringstream text;
    text << in.rdbuf();
    BadPlan plan{entry.path().stem().string(), "", "", text.str()};
    std::istringstream header(plan.text.substr(0, plan.text.find('\n')));
    std::string hash, expect;
    header >> hash >> expect >> plan.code;
    std::getline(header >> std::ws, plan.message);
    if (hash != "#" || expect != "expect:") plan.code.clear();
    plans.push_back(plan);
  }
  std::sort(plans.begin(), plans.end(), [](const BadPlan& a, const BadPlan& b) { return a.file < b.file; });
  return plans;
}

class Bad : public ::testing::TestWithParam<BadPlan> {};

TEST_P(Bad, BreaksItsInvariant) {
  const BadPlan& bad = GetParam();
  ASSERT_NE(find_invariant(bad.code), nullptr) << "the first line must be '# expect: CODE MESSAGE'";
  ASSERT_FALSE(bad.message.empty());
  const SourceText source(bad.file + ".plan", bad.text);
  DiagnosticSink sink;
  PlanLocations locations;
  const std::optional<Plan> plan = parse_plan(source, sink, &locations);
  ASSERT_TRUE(plan) << sink.text();
  EXPECT_FALSE(verify(*plan, sink, {&source, &locations}));
  bool found = false;
  for (const Diagnostic& d : sink.all()) {
    found = found || (d.code == bad.code && d.message.find(bad.message) != std::string::npos);
    EXPECT_EQ(d.where.file, bad.file + ".plan");
  }
  EXPECT_TRUE(found) << "expected " << bad.code << ": " << bad.message << "\n" << sink.text();
}

INSTANTIATE_TEST_SUITE_P(Plans, Bad, ::testing::ValuesIn(bad_plans()),
                         [](const auto& info) { return info.param.file; });

TEST(BadPlans, EveryInvariantHasOne) {
  std::set<std::string> codes;
  for (const BadPlan& bad : bad_plans()) codes.insert(bad.code);
  for (const InvariantInfo& row : invariants()) EXPECT_TRUE(codes.count(std::string(row.code))) << row.code;
}

// A rule that is only ever broken along with another one would say nothing of its own.
TEST(BadPlans, EveryInvariantIsBrokenAloneByOne) {
  std::set<std::string> alone;
  for (const BadPlan& bad : bad_plans()) {
    DiagnosticSink sink;
    const std::optional<Plan> plan = parse_plan(SourceText(bad.file, bad.text), sink);
    ASSERT_TRUE(plan) << sink.text();
    verify(*plan, sink);
    std::set<std::string> codes;
    for (const Diagnostic& d : sink.all()) {
      if (d.severity == Severity::Error) codes.insert(d.code);
    }
    if (codes.size() == 1) alone.insert(*codes.begin());
  }
  for (const InvariantInfo& row : invariants()) EXPECT_TRUE(alone.count(std::string(row.code))) << row.code;
}

}  // namespace
}  // namespace fem::ir::testing
