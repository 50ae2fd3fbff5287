// Corrupted plans: whatever the verifier accepts must compute the same as the plan it came from.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/corruption.hpp"
#include "tests/ir/plans.hpp"
#include "tests/ir/symbolic_world.hpp"

namespace fem::ir::testing {
namespace {

// V01 to V11 are about single lines; from V12 on every action can be executed.
bool operands_are_legal(const DiagnosticSink& sink) {
  return std::none_of(sink.all().begin(), sink.all().end(), [](const Diagnostic& d) {
    return d.severity == Severity::Error && d.code < "V12";
  });
}

struct Original {
  Plan plan;
  std::vector<WorldResult> results;  // by program
};

std::vector<Original> originals() {
  std::vector<Original> out;
  for (const PlanShape& shape : all_shapes()) {
    if (shape.microbatches > 4) continue;
    Original original{communication_plan(shape), {}};
    for (const Program& p : original.plan.programs) original.results.push_back(run_symbolically(original.plan, p));
    out.push_back(std::move(original));
  }
  return out;
}

TEST(SymbolicWorld, RunsEveryShape) {
  for (const PlanShape& shape : all_shapes()) {
    SCOPED_TRACE(name(shape));
    const Plan plan = communication_plan(shape);
    for (const Program& p : plan.programs) {
      const WorldResult result = run_symbolically(plan, p);
      EXPECT_EQ(result.failure, "");
      EXPECT_EQ(result.params.size(), plan.stages.size());
    }
  }
}

// The oracle must be able to tell: losing, doubling or misplacing a contribution changes or stops the result.
TEST(SymbolicWorld, SeesALostAndADoubledContribution) {
  const Plan plan = communication_plan({.pp = 2, .microbatches = 3, .order = Order::Split});
  const WorldResult expected = run_symbolically(plan, plan.programs[0]);
  for (const ActionKind kind : {ActionKind::BackwardWeight, ActionKind::ClipGrad, ActionKind::OptimizerStep}) {
    Program program = plan.programs[0];
    std::vector<Action>& actions = program.ranks[1].actions;
    const auto found = std::find_if(actions.begin(), actions.end(), [&](const Action& a) { return a.kind == kind; });
    ASSERT_NE(found, actions.end());
    actions.erase(found);
    EXPECT_NE(run_symbolically(plan, program), expected) << name(kind);
  }
  Program program = plan.programs[0];
  std::vector<Action>& actions = program.ranks[0].actions;
  actions.insert(actions.begin() + 1, actions[0]);
  EXPECT_NE(run_symbolically(plan, program), expected) << "a second ZeroGrad";
}

// GPipe, 1F1B and the split backward add the same contributions.
TEST(SymbolicWorld, OrderOfTheScheduleDoesNotMatter) {
  const auto params = [](Order order) {
    const Plan plan = communication_plan({.pp = 3, .microbatches = 4, .order = order});
    return run_symbolically(plan, plan.programs[0]).params;
  };
  EXPECT_EQ(params(Order::AllForwardThenBackward), params(Order::OneForwardOneBackward));
  EXPECT_EQ(params(Order::OneForwardOneBackward), params(Order::Split));
}

// After a step both replicas of a stage hold the same parameters; without their reduction they do not.
TEST(SymbolicWorld, ReplicasStayEqual) {
  for (const PlanShape& shape : all_shapes()) {
    if (shape.placement != Placement::Bidirectional || shape.microbatches < 2) continue;
    SCOPED_TRACE(name(shape));
    const Plan plan = communication_plan(shape);
    const auto differ = [&](const Program& program) {
      const WorldResult result = run_symbolically(plan, program);
      EXPECT_EQ(result.failure, "");
      int different = 0;
      for (std::size_t s = 0; s < plan.stages.size(); ++s) {
        const int original = plan.stages[s].replica_of;
        different += original >= 0 && result.params[s] != result.params[static_cast<std::size_t>(original)];
      }
      return different;
    };
    EXPECT_EQ(differ(plan.programs[0]), 0);
    Program without = plan.programs[0];
    for (RankProgram& rank : without.ranks) {
      std::erase_if(rank.actions, [](const Action& a) { return a.kind == ActionKind::ReduceReplicaGrad; });
    }
    EXPECT_EQ(differ(without), shape.pp);
  }
}

TEST(Corruption, WhatTheVerifierAcceptsComputesTheSame) {
  constexpr int kCorruptions = 10000;
  const std::vector<Original> all = originals();
  Random random(20240607);
  int accepted = 0, changed_and_accepted = 0, rejected = 0, rejected_although_equal = 0;
  for (int n = 0; n < kCorruptions; ++n) {
    const Original& original = all[below(random, all.size())];
    Plan plan = original.plan;
    const std::size_t p = below(random, plan.programs.size());
    for (std::size_t k = 1 + below(random, 2); k > 0; --k) corrupt(random, plan.programs[p]);
    DiagnosticSink sink;
    const bool ok = verify(plan, sink);
    ASSERT_EQ(ok, !sink.has_errors());
    const bool same = plan == original.plan;
    ASSERT_TRUE(ok || !same) << sink.text();
    if (!ok) {
      // Programs with legal operands can be run all the same, to see whether the rejection was right.
      if (!operands_are_legal(sink)) continue;
      ++rejected;
      rejected_although_equal += run_symbolically(plan, plan.programs[p]) == original.results[p];
      continue;
    }
    ++accepted;
    changed_and_accepted += !same;
    const WorldResult result = run_symbolically(plan, plan.programs[p]);
    ASSERT_EQ(result.failure, "") << n << '\n' << print_plan(original.plan) << "became\n" << print_plan(plan);
    ASSERT_EQ(result, original.results[p]) << n << '\n' << print_plan(original.plan) << "became\n" << print_plan(plan);
  }
  RecordProperty("accepted", accepted);
  RecordProperty("rejected", rejected);
  RecordProperty("rejected_although_equal", rejected_although_equal);
  // Swaps of independent neighbours exist, and most corruptions do harm; otherwise this test would show nothing.
  EXPECT_GT(changed_and_accepted, kCorruptions / 100);
  EXPECT_LT(accepted, kCorruptions / 2);
  // What is refused although it would end well: messages out of order that come back into order, and the like.
  EXPECT_LT(rejected_although_equal, rejected / 50);
}

// Stages, settings and waits too: no answer is wrong here but a crash or a hang.
TEST(Corruption, NothingCrashesTheVerifier) {
  Random random(7);
  const std::vector<PlanShape> shapes = all_shapes();
  for (int n = 0; n < 3000; ++n) {
    Plan plan = communication_plan({.pp = 1 + static_cast<int>(n % 4), .microbatches = 2, .batches = false});
    const auto any16 = [&random] { return static_cast<std::int16_t>(random()); };
    const auto small = [&random] { return static_cast<std::int16_t>(static_cast<int>(below(random, 7)) - 2); };
    Stage& stage = plan.stages[below(random, plan.stages.size())];
    const std::int16_t value = n % 2 ? any16() : small();
    std::int16_t Stage::*const fields[] = {&Stage::pp,         &Stage::prev,       &Stage::next,
                                           &Stage::replica_of, &Stage::first_unit, &Stage::units};
    switch (below(random, 6)) {
      case 0: stage.*fields[below(random, 6)] = value; break;
      case 1: {
        const SettingInfo& row = setting_table()[below(random, setting_table().size())];
        const SettingRef ref = row.at(plan.settings);
        if (auto* integer = std::get_if<setting_type::Int*>(&ref)) **integer = n % 2 ? INT64_MAX : value;
        if (auto* real = std::get_if<setting_type::Real*>(&ref)) **real = -1.0 / value;
        break;
      }
      case 2: plan.programs[0].microbatches = n % 2 ? INT32_MAX : value; break;
      case 3: plan.programs[0].ranks.resize(below(random, 7)); break;
      case 4:
        plan.level = Level::Lane;
        plan.programs[0].ranks[0].waits = {{static_cast<std::uint32_t>(below(random, 30)),
                                            static_cast<Lane>(below(random, kLanes)),
                                            static_cast<std::uint32_t>(value)}};
        break;
      default:
        plan.level = static_cast<Level>(below(random, 4));
        plan.stages.push_back(stage);
        break;
    }
    Action& a = plan.programs.back().ranks[0].actions.front();
    if (below(random, 2)) a.stage = any16();
    DiagnosticSink sink;
    const bool ok = verify(plan, sink);
    EXPECT_EQ(ok, !sink.has_errors());
    EXPECT_FALSE(sink.has_errors() && sink.text().empty());
  }
}

}  // namespace
}  // namespace fem::ir::testing
