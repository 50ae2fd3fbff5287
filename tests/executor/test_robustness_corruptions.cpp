// Random corruptions of valid plans: each is rejected by the verifier, or runs with the numbers of the original.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "executor/error.hpp"
#include "executor/interpreter.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::make_plan;
using test::Order;
using test::Outcome;
using test::small_settings;

constexpr int kCorruptionsPerPlan = 1250;

std::size_t pick(std::mt19937_64& random, std::size_t count) { return random() % count; }

// Drops, doubles, swaps, moves, renames or renumbers one action (or batch) of one rank.
void corrupt(ir::Plan& plan, std::mt19937_64& random) {
  ir::Program& program = plan.programs[pick(random, plan.programs.size())];
  std::vector<ir::Action>& actions = program.ranks[pick(random, program.ranks.size())].actions;
  const std::size_t at = pick(random, actions.size());
  const auto position = [&](std::size_t i) { return actions.begin() + static_cast<std::ptrdiff_t>(i); };
  switch (pick(random, 8)) {
    case 0: actions.erase(position(at)); break;
    case 1: actions.insert(position(at), ir::Action(actions[at])); break;
    case 2: std::swap(actions[at], actions[pick(random, actions.size())]); break;
    case 3:
      if (at + 1 < actions.size()) std::swap(actions[at], actions[at + 1]);
      break;
    case 4: {
      const ir::Action moved = actions[at];
      actions.erase(position(at));
      actions.insert(position(pick(random, actions.size() + 1)), moved);
      break;
    }
    case 5: actions[at].kind = static_cast<ir::ActionKind>(pick(random, ir::kActionKinds)); break;
    case 6:
      actions[at].microbatch = static_cast<std::int32_t>(pick(random, static_cast<std::size_t>(program.microbatches)));
      break;
    case 7: actions[at].flags ^= pick(random, 2) ? ir::Action::kJoined : ir::Action::kIfFinite; break;
  }
}

// The microbatches of the actions that add to a stage's accumulators, in order: what its gradients' bits depend on.
std::vector<std::vector<int>> backward_orders(const ir::Plan& plan) {
  std::vector<std::vector<int>> orders(plan.stages.size());
  for (const ir::RankProgram& rank : plan.programs[0].ranks)
    for (const ir::Action& a : rank.actions)
      if (a.kind == ir::ActionKind::Backward || a.kind == ir::ActionKind::BackwardWeight)
        orders[static_cast<std::size_t>(a.stage)].push_back(a.microbatch);
  return orders;
}

// Refused by the verifier, or legal but of no use to this version, as a reduction in shards is.
bool refused(const ir::Plan& plan) {
  ir::DiagnosticSink sink;
  const bool verified = ir::verify(plan, sink);
  EXPECT_NE(verified, sink.has_errors());
  if (!verified) return true;
  try {
    check_executable(plan);
  } catch (const ExecutionError&) {
    return true;
  }
  return false;
}

struct Count {
  int rejected = 0, equal = 0, reordered = 0;
};

void check(const ir::Plan& original, std::uint64_t seed, Count& count) {
  const Outcome expected = test::train_unsaved(original);
  std::mt19937_64 random(seed);
  for (int i = 0; i < kCorruptionsPerPlan; ++i) {
    ir::Plan plan = original;
    corrupt(plan, random);
    if (refused(plan)) {
      ++count.rejected;
      continue;
    }
    const std::string shown =
        "corruption " + std::to_string(i) + " of seed " + std::to_string(seed) + "\n" + ir::print_plan(plan);
    Outcome outcome;
    try {
      outcome = test::train_unsaved(plan, CommOptions{std::chrono::seconds(20)});
    } catch (const std::exception& error) {
      FAIL() << "verified, but failed: " << error.what() << "\n" << shown;
    }
    ASSERT_EQ(outcome.losses.size(), expected.losses.size());
    if (backward_orders(plan) == backward_orders(original)) {
      ++count.equal;
      ASSERT_EQ(outcome.losses, expected.losses) << shown;
      ASSERT_EQ(outcome.norms, expected.norms) << shown;
      ASSERT_EQ(outcome.eval_losses, expected.eval_losses) << shown;  // of the weights after the last step
    } else {
      ++count.reordered;
      for (std::size_t s = 0; s < expected.losses.size(); ++s)
        ASSERT_LE(test::relative_error(outcome.losses[s], expected.losses[s]), 1e-6) << shown;
    }
  }
}

TEST(Corruptions, AreRejectedOrRunWithTheSameNumbers) {
  const test::TemporaryFolder folder;
  Count count;
  std::uint64_t seed = 1;
  for (const Order order : {Order::gpipe, Order::one_f_one_b, Order::split})
    for (int pp : {1, 2, 4}) {
      if (pp == 1 && order == Order::gpipe) continue;
      ir::Settings settings = small_settings();
      settings.parallel.pp = pp;
      settings.parallel.dp = pp == 2 ? 2 : 1;
      settings.model.tied = pp != 4;
      settings.batch.global = 4 * settings.parallel.dp;
      settings.run.steps = 2;
      settings.data.train = settings.data.eval = test::write_tokens(folder.path(), settings.model.vocab, 2000);
      check(make_plan(settings, order), seed++, count);
      if (HasFatalFailure()) return;
    }
  // Two replicas in two directions, embedding and head of the tied model on both ranks.
  ir::Settings settings = small_settings();
  settings.parallel.pp = 2;
  settings.model.tied = true;
  settings.batch.global = 4;
  settings.run.steps = 2;
  settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 2000);
  check(test::make_placed_plan(settings, fem::test::Placement::Bidirectional, fem::test::dualpipe(2, 4)), seed, count);
  if (HasFatalFailure()) return;
  std::printf("rejected %d, equal bits %d, reordered %d\n", count.rejected, count.equal, count.reordered);
  EXPECT_EQ(count.rejected + count.equal + count.reordered, 9 * kCorruptionsPerPlan);
  EXPECT_GT(count.equal, 50);      // the check is not empty
  EXPECT_GT(count.rejected, 5000);
}

}  // namespace
}  // namespace fem::exec
