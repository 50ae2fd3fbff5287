// Programs of single units: what the verifier accepts must compute the same, whatever was done to them.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/corruption.hpp"
#include "tests/ir/unit_programs.hpp"

namespace fem::ir::testing {
namespace {

TEST(UnitPrograms, OfEveryShapeVerifyAndAreReadBack) {
  for (const UnitShape& shape : all_unit_shapes()) {
    SCOPED_TRACE(name(shape));
    const Plan plan = unit_plan(shape);
    DiagnosticSink sink;
    EXPECT_TRUE(verify(plan, sink)) << sink.text();
    const std::string text = print_plan(plan);
    const auto again = parse_plan(SourceText("plan", text), sink);
    ASSERT_TRUE(again) << sink.text();
    EXPECT_EQ(*again, plan);
    EXPECT_EQ(print_plan(*again), text);
  }
}

// What is divided, when it is reduced, what is recomputed: none changes what is computed.
TEST(UnitPrograms, OfEveryShapeComputeTheSame) {
  const auto result = [](const UnitShape& shape) {
    const Plan plan = unit_plan(shape);
    UnitResult out = run_units(plan, plan.programs[0]);
    EXPECT_EQ(out.failure, "") << name(shape);
    return out;
  };
  for (const UnitShape& shape : all_unit_shapes()) {
    UnitShape plain{.zero = shape.zero, .before_use = shape.before_use, .groups = shape.groups};
    EXPECT_EQ(result(shape), result(plain)) << name(shape);
  }
  EXPECT_EQ(result({.zero = 3}).loss, result({.zero = 0}).loss);
  EXPECT_EQ(result({.zero = 3}).shard, result({.zero = 0}).shard);
  EXPECT_EQ(result({.zero = 2, .before_use = true}).shard, result({.zero = 3}).shard);
  EXPECT_EQ(result({.zero = 2, .before_use = true, .groups = true}).shard, result({.zero = 3, .groups = true}).shard);
}

TEST(UnitPrograms, WhatTheVerifierAcceptsComputesTheSame) {
  constexpr int kCorruptions = 10000;
  std::vector<Plan> plans;
  std::vector<std::vector<UnitResult>> results;
  for (const UnitShape& shape : all_unit_shapes()) {
    plans.push_back(unit_plan(shape));
    results.emplace_back();
    for (const Program& p : plans.back().programs) results.back().push_back(run_units(plans.back(), p));
  }
  Random random(20250131);
  int accepted = 0, changed = 0;
  for (int n = 0; n < kCorruptions; ++n) {
    const std::size_t original = below(random, plans.size());
    Plan plan = plans[original];
    const std::size_t p = below(random, plan.programs.size());
    for (std::size_t k = 1 + below(random, 2); k > 0; --k) corrupt(random, plan.programs[p]);
    DiagnosticSink sink;
    if (!verify(plan, sink)) {
      ASSERT_NE(plan, plans[original]) << sink.text();
      continue;
    }
    ++accepted;
    changed += plan != plans[original];
    ASSERT_EQ(run_units(plan, plan.programs[p]), results[original][p])
        << n << '\n' << print_plan(plans[original]) << "became\n" << print_plan(plan);
  }
  // Swaps of independent neighbours exist, and most corruptions do harm; otherwise this test would show nothing.
  EXPECT_GT(changed, kCorruptions / 100);
  EXPECT_LT(accepted, kCorruptions / 2);
}

}  // namespace
}  // namespace fem::ir::testing
