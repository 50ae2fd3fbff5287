#include "executor/interpreter.hpp"

#include <algorithm>
#include <initializer_list>

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "executor/error.hpp"
#include "ir/builder.hpp"
#include "tests/executor/support.hpp"
#include "tests/units/functional.hpp"

namespace fem::exec {
namespace {

using test::make_plan;
using test::on_ranks;
using test::small_settings;
using testing::HasSubstr;

// Microbatches of `micro` sequences whose tokens follow from their number.
std::vector<LoadedMicrobatch> batches_of(const ir::Settings& settings, std::int64_t first_sequence,
                                         std::int64_t count) {
  std::vector<LoadedMicrobatch> batches;
  for (std::int64_t m = 0; m < count; ++m) {
    LoadedMicrobatch& loaded = batches.emplace_back();
    const std::vector<std::int64_t> shape{settings.batch.micro, settings.batch.seq_len};
    loaded.batch.tokens = at::zeros(shape, at::kLong);
    loaded.batch.targets = at::zeros(shape, at::kLong);
    for (std::int64_t b = 0; b < settings.batch.micro; ++b)
      for (std::int64_t t = 0; t < settings.batch.seq_len; ++t) {
        const std::int64_t sequence = first_sequence + m * settings.batch.micro + b;
        const std::int64_t at = b * settings.batch.seq_len + t;
        const auto token = [&](std::int64_t i) { return (sequence * 17 + i * i) % settings.model.vocab; };
        loaded.batch.tokens.data_ptr<std::int64_t>()[at] = token(t);
        loaded.batch.targets.data_ptr<std::int64_t>()[at] = token(t + 1);
      }
  }
  return batches;
}

// The step by functional compositions of the units, microbatch by microbatch: what every plan
// of equal backward order must equal.
struct DirectStep {
  StepMetrics metrics;
  std::vector<at::Tensor> grads;  // flat, by unit
};

DirectStep run_direct(const ir::Settings& settings) {
  const ir::Plan plan = make_plan(settings);
  Parameters parameters(plan, 0);
  parameters.initialise(settings, 1);
  std::vector<UnitParameters>& units = parameters.stages()[0].units;
  std::vector<std::unique_ptr<test::functional::Unit>> trios;
  const auto arithmetic = choose_arithmetic(compute_type(settings));
  for (const UnitParameters& unit : units)
    trios.push_back(test::functional::make_unit(settings, unit.unit, arithmetic));
  DirectStep step;
  for (const LoadedMicrobatch& loaded : batches_of(settings, 0, ir::microbatches(settings))) {
    std::vector<test::functional::Tensors> saved(units.size());
    LossSum loss;
    at::Tensor x;
    for (std::size_t u = 0; u < units.size(); ++u)
      x = trios[u]->forward(units[u].params, x, loaded.batch, &saved[u], &loss);
    at::Tensor dy;
    for (std::size_t u = units.size(); u-- > 0;) {
      test::functional::Tensors work;
      dy = trios[u]->backward_input(units[u].params, dy, &saved[u], &work);
      trios[u]->backward_weight(&work, units[u].grads);
    }
    step.metrics.loss_sum += loss.loss;
    step.metrics.tokens += loss.tokens;
  }
  for (const UnitParameters& unit : units) step.grads.push_back(unit.grad);
  return step;
}

// The plan's program without what follows ReduceLoss, so that the accumulators stay as the backwards left them.
ir::Plan without_update(ir::Plan plan) {
  for (ir::RankProgram& rank : plan.programs[0].ranks)
    while (rank.actions.back().kind != ir::ActionKind::ReduceLoss) rank.actions.pop_back();
  return plan;
}

struct Ran {
  StepResult result;
  std::vector<at::Tensor> grads;
};

Ran run_plan(const ir::Plan& plan) {
  std::vector<Ran> ran(static_cast<std::size_t>(plan.settings.parallel.pp));
  on_ranks(plan.settings, [&](Communicator& comm) {
    const Topology topology(plan.settings);
    Parameters parameters(plan, comm.rank());
    parameters.initialise(plan.settings, 1);
    Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
    const auto batches = batches_of(plan.settings, 0, plan.programs[0].microbatches);
    StepInput input;
    input.batches = batches;
    Ran& mine = ran[static_cast<std::size_t>(comm.rank())];
    mine.result = interpreter.run(plan.programs[0], input);
    EXPECT_EQ(interpreter.alive_buffers(), 0);
    for (const UnitParameters& unit : parameters.stages()[0].units) mine.grads.push_back(unit.grad);
  });
  Ran all = ran[0];
  for (std::size_t r = 1; r < ran.size(); ++r) {
    EXPECT_EQ(ran[r].result.metrics.loss_sum, all.result.metrics.loss_sum);
    all.grads.insert(all.grads.end(), ran[r].grads.begin(), ran[r].grads.end());
  }
  return all;
}

class InterpreterEqualsDirectCalls : public testing::TestWithParam<std::tuple<int, test::Order, const char*>> {};

TEST_P(InterpreterEqualsDirectCalls, LossAndGradients) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = std::get<0>(GetParam());
  settings.precision.compute = std::get<2>(GetParam());
  const Ran ran = run_plan(without_update(make_plan(settings, std::get<1>(GetParam()))));
  ir::Settings one = settings;
  one.parallel.pp = 1;
  const DirectStep direct = run_direct(one);
  EXPECT_EQ(ran.result.metrics.loss_sum, direct.metrics.loss_sum);
  EXPECT_EQ(ran.result.metrics.tokens, direct.metrics.tokens);
  ASSERT_EQ(ran.grads.size(), direct.grads.size());
  for (std::size_t u = 0; u < ran.grads.size(); ++u)
    EXPECT_TRUE(test::same_bits(ran.grads[u], direct.grads[u])) << "unit " << u;
}

// All orders here run a stage's backwards in microbatch order, so all have the same bits.
INSTANTIATE_TEST_SUITE_P(Plans, InterpreterEqualsDirectCalls,
                         testing::Combine(testing::Values(1, 2, 4),
                                          testing::Values(test::Order::gpipe, test::Order::one_f_one_b,
                                                          test::Order::split),
                                          testing::Values("fp32", "bf16", "fp16")));

// Two stages on one rank: the activation goes from one to the other without a transfer.
TEST(Interpreter, StagesOnOneRankHandOverTheirBuffers) {
  ir::Settings settings = small_settings();
  settings.batch.global = 2;
  ir::Plan plan = make_plan(settings);
  plan.stages[0].units = 3;
  plan.stages[0].next = 1;
  ir::Stage second = plan.stages[0];
  second.prev = 0;
  second.next = -1;
  second.first_unit = 3;
  plan.stages.push_back(second);
  auto& actions = plan.programs[0].ranks[0].actions;
  actions = {ir::zero_grad(0), ir::zero_grad(1)};
  for (int m : {0, 1}) {
    actions.push_back(ir::forward(0, m));
    actions.push_back(ir::forward(1, m));
  }
  for (int m : {0, 1}) {
    actions.push_back(ir::backward(1, m));
    actions.push_back(ir::backward(0, m));
  }
  actions.push_back(ir::reduce_loss());
  plan.programs.resize(1);
  on_ranks(settings, [&](Communicator& comm) {
    const Topology topology(settings);
    Parameters parameters(plan, 0);
    parameters.initialise(settings, 1);
    Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
    const auto batches = batches_of(settings, 0, 2);
    StepInput input;
    input.batches = batches;
    const StepResult result = interpreter.run(plan.programs[0], input);
    const DirectStep direct = run_direct(settings);
    EXPECT_EQ(result.metrics.loss_sum, direct.metrics.loss_sum);
    std::size_t u = 0;
    for (const StageParameters& stage : parameters.stages())
      for (const UnitParameters& unit : stage.units) EXPECT_TRUE(test::same_bits(unit.grad, direct.grads[u++])) << u;
    EXPECT_EQ(u, direct.grads.size());
  });
}

// The error of a plan whose train program is changed by `change`.
std::string error_of(ir::Settings settings, const std::function<void(std::vector<ir::Action>&)>& change) {
  ir::Plan plan = make_plan(settings);
  change(plan.programs[0].ranks[0].actions);
  try {
    run_plan(plan);
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Interpreter, NamesRankStepAndActionOfAnError) {
  const std::string error =
      error_of(small_settings(), [](auto& actions) { actions.insert(actions.begin(), ir::backward(0, 3)); });
  EXPECT_THAT(error, HasSubstr("rank 0 (pp 0 dp 0), step 0, Backward s0 m3: "));
  EXPECT_THAT(error, HasSubstr("read before"));
}

TEST(Interpreter, FindsALeak) {
  const std::string error = error_of(small_settings(), [](auto& actions) {
    std::erase_if(actions, [](const ir::Action& a) { return a.kind == ir::ActionKind::Backward && a.microbatch == 7; });
  });
  EXPECT_THAT(error, HasSubstr("end of the program"));
  EXPECT_THAT(error, HasSubstr("buffers are alive"));
}

// Moments in the pool of an interpreter go back to it with the error, before the pool goes.
TEST(Interpreter, GivesBackMomentsAfterAnError) {
  ir::Settings settings = small_settings();
  settings.memory.offload = "optimizer";
  const auto with = [&](std::initializer_list<ir::ActionKind> before_the_step) {
    return error_of(settings, [&](auto& actions) {
      const auto step = std::ranges::find(actions, ir::ActionKind::OptimizerStep, &ir::Action::kind);
      ASSERT_NE(step, actions.end());
      std::vector<ir::Action> moves;
      for (const ir::ActionKind kind : before_the_step) moves.push_back(ir::action(kind, 0));
      actions.insert(step, moves.begin(), moves.end());
    });
  };
  EXPECT_THAT(with({ir::ActionKind::ReloadOptimizer, ir::ActionKind::ReloadOptimizer}),
              HasSubstr("ReloadOptimizer s0: "));
  EXPECT_THAT(with({ir::ActionKind::OffloadOptimizer}), HasSubstr("moments are offloaded that are not there"));
  EXPECT_THAT(with({ir::ActionKind::ReloadOptimizer}), HasSubstr("buffers are alive"));
}

TEST(Interpreter, RefusesActionsThatItDoesNotExecute) {
  // Block 0 alone has no recompute that would restore it.
  for (const auto& [kind, block] : {std::pair(ir::ActionKind::Free, 0), std::pair(ir::ActionKind::Recompute, 0)}) {
    ir::Action refused = ir::action(kind, 0, 0);
    refused.slot = static_cast<std::int16_t>(block);
    const std::string error = error_of(small_settings(), [&](auto& actions) { actions.push_back(refused); });
    EXPECT_THAT(error, HasSubstr(std::string(ir::name(kind)))) << error;
    EXPECT_THAT(error, HasSubstr("is not executed by this version"));
  }
}

TEST(Interpreter, TheLastStageMustReadTheSamplesOfTheFirst) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = 2;
  const ir::Plan plan = make_plan(settings);
  try {
    on_ranks(settings, [&](Communicator& comm) {
      const Topology topology(settings);
      Parameters parameters(plan, comm.rank());
      parameters.initialise(settings, 1);
      Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
      auto batches = batches_of(settings, 0, 8);
      if (comm.rank() == 1) std::swap(batches[2], batches[3]);  // labels of another batch
      StepInput input;
      input.step = 4;
      input.batches = batches;
      interpreter.run(plan.programs[0], input);
    });
    FAIL() << "no error";
  } catch (const ExecutionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 4, ReduceLoss over world: "));
    EXPECT_THAT(error.what(), HasSubstr("read different samples for microbatch m2"));
  }
}

}  // namespace
}  // namespace fem::exec
