#include "executor/grad_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "executor/update.hpp"
#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::make_plan;
using test::on_ranks;
using test::small_settings;

TEST(SumOfSquares, IsExactWhereEveryTermIs) {
  std::vector<float> ones(10'001, 1.0f);
  EXPECT_EQ(sum_of_squares(ones), 10'001.0);
  EXPECT_EQ(sum_of_squares({}), 0.0);
}

TEST(SumOfSquares, DoesNotOverflowOrVanishInFp32) {
  std::vector<float> large(3, 1e30f), small(3, 1e-30f);
  EXPECT_NEAR(sum_of_squares(large) / 3e60, 1, 1e-6);
  EXPECT_NEAR(sum_of_squares(small) / 3e-60, 1, 1e-6);
}

TEST(SumOfSquares, AgreesWithASumInLongDouble) {
  std::vector<float> values;
  long double sum = 0;
  for (int i = 0; i < 30'007; ++i) {
    values.push_back(static_cast<float>(std::sin(i)) * 1e3f);
    sum += static_cast<long double>(values.back()) * values.back();
  }
  EXPECT_NEAR(sum_of_squares(values) / static_cast<double>(sum), 1.0, 1e-14);
}

// Gradients as a function of the parameter's place in the model and the element.
void fill_gradients(Parameters& parameters) {
  for (StageParameters& stage : parameters.stages())
    for (UnitParameters& unit : stage.units)
      for (std::size_t p = 0; p < unit.grads.size(); ++p) {
        const double index = static_cast<double>(parameter_index(unit.unit, static_cast<std::int64_t>(p)));
        float* data = unit.grads[p].data_ptr<float>();
        for (std::int64_t i = 0; i < unit.grads[p].numel(); ++i)
          data[i] = static_cast<float>(std::sin(index + 0.1 * static_cast<double>(i)));
      }
}

struct Norm {
  double value;
  std::string not_finite;
};

// The norm as every rank of a pp x dp mesh finds it; fails the test where they differ.
Norm norm_on(ir::Settings settings, int pp, int dp, const std::function<void(Parameters&)>& fill) {
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  const ir::Plan plan = make_plan(settings);
  std::vector<Norm> norms(static_cast<std::size_t>(pp * dp));
  on_ranks(settings, [&](Communicator& comm) {
    Parameters parameters(plan, Topology(settings).coordinates(comm.rank()).pp);
    fill(parameters);
    GradNorm norm(plan);
    const double value = norm(parameters, comm);
    norms[static_cast<std::size_t>(comm.rank())] = {value, norm.not_finite(Topology(settings))};
  });
  for (const Norm& norm : norms) {
    EXPECT_TRUE(norm.value == norms[0].value || (std::isnan(norm.value) && std::isnan(norms[0].value)));
    EXPECT_EQ(norm.not_finite, norms[0].not_finite);
  }
  return norms[0];
}

TEST(GradNorm, HasTheSameBitsOnEveryLayoutAndCountsEachParameterOnce) {
  double sum = 0;
  const Norm one = norm_on(small_settings(), 1, 1, [&](Parameters& parameters) {
    fill_gradients(parameters);
    for (const UnitParameters& unit : parameters.stages()[0].units)
      for (const at::Tensor& g : unit.grads)
        for (std::int64_t i = 0; i < g.numel(); ++i) sum += std::pow(g.const_data_ptr<float>()[i], 2);
  });
  EXPECT_NEAR(one.value / std::sqrt(sum), 1.0, 1e-12);
  EXPECT_EQ(norm_on(small_settings(), 2, 1, fill_gradients).value, one.value);
  EXPECT_EQ(norm_on(small_settings(), 4, 1, fill_gradients).value, one.value);
  EXPECT_EQ(norm_on(small_settings(), 2, 2, fill_gradients).value, one.value);
  EXPECT_EQ(norm_on(small_settings(), 1, 4, fill_gradients).value, one.value);
}

TEST(GradNorm, CountsATiedEmbeddingOnce) {
  const auto only_copies = [](Parameters& parameters) {
    for (StageParameters& stage : parameters.stages())
      for (UnitParameters& unit : stage.units)
        if (unit.kind != ir::UnitKind::block) unit.grads[unit.kind == ir::UnitKind::head ? 1 : 0].fill_(1.0);
  };
  ir::Settings settings = small_settings();
  const double elements = static_cast<double>(settings.model.vocab * settings.model.hidden);
  for (int pp : {1, 2, 4}) {
    settings.model.tied = true;
    EXPECT_EQ(norm_on(settings, pp, 1, only_copies).value, std::sqrt(elements)) << pp;
    settings.model.tied = false;
    EXPECT_EQ(norm_on(settings, pp, 1, only_copies).value, std::sqrt(2 * elements)) << pp;
  }
}

TEST(GradNorm, NamesTheFirstParameterThatIsNotFinite) {
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto spoil = [bad](Parameters& parameters) {
      fill_gradients(parameters);
      for (StageParameters& stage : parameters.stages())
        for (UnitParameters& unit : stage.units)
          if (unit.unit == 3) unit.grads[8].data_ptr<float>()[5] = bad;  // block 2, down
    };
    const Norm norm = norm_on(small_settings(), 2, 2, spoil);
    EXPECT_FALSE(std::isfinite(norm.value));
    EXPECT_EQ(norm.not_finite, "model.layers.2.mlp.down_proj.weight on rank 2 (pp 1 dp 0)");
  }
}

TEST(GradientScale, DividesByTokensAndLimitsTheNorm) {
  EXPECT_DOUBLE_EQ(gradient_scale(0.5, 8, 1.0), 1.0 / 8);
  EXPECT_DOUBLE_EQ(gradient_scale(4.0, 8, 1.0), 1.0 / 32);
  EXPECT_DOUBLE_EQ(gradient_scale(4.0, 8, 0.0), 1.0 / 8);  // no limit
}

// Norm, clip: after both the stored gradients have the norm of the limit.
TEST(Update, ClippedGradientsHaveTheLimitAsTheirNorm) {
  ir::Settings settings = small_settings();
  settings.optimizer.clip_norm = 0.25;
  const ir::Plan plan = make_plan(settings);
  on_ranks(settings, [&](Communicator& comm) {
    Parameters parameters(plan, 0);
    fill_gradients(parameters);
    BlockPool pool;
    Update update(plan, parameters, comm, pool);
    const double norm = update.grad_norm(10);
    EXPECT_GT(norm, 0.25);
    update.clip(0, norm, 10);
    EXPECT_NEAR(update.grad_norm(1), 0.25, 1e-6);
  });
}

// Gradients of 2^20 times the loss end as those of the loss, to the last bit, clipped or not; so does their norm.
TEST(Update, TheLossScaleIsDividedOut) {
  for (const double limit : {0.0, 0.25}) {
    ir::Settings settings = small_settings();
    settings.optimizer.clip_norm = limit;
    const ir::Plan plan = make_plan(settings);
    on_ranks(settings, [&](Communicator& comm) {
      Parameters plain(plan, 0), scaled(plan, 0);
      fill_gradients(plain);
      fill_gradients(scaled);
      BlockPool pool;
      Update update(plan, plain, comm, pool), with_scale(plan, scaled, comm, pool);
      for (UnitParameters& unit : scaled.stages()[0].units) unit.grad.mul_(0x1p20);
      update.begin_step();
      with_scale.begin_step(0x1p20);
      const double norm = update.grad_norm(10);
      EXPECT_EQ(with_scale.grad_norm(10), norm);
      update.clip(0, norm, 10);
      with_scale.clip(0, norm, 10);
      for (std::size_t u = 0; u < plain.stages()[0].units.size(); ++u)
        EXPECT_TRUE(test::same_bits(scaled.stages()[0].units[u].grad, plain.stages()[0].units[u].grad)) << "unit " << u;
    });
  }
}

TEST(Update, BothCopiesOfATiedEmbeddingEndWithTheSumOfBothGradients) {
  for (int pp : {1, 2}) {
    ir::Settings settings = small_settings();
    settings.model.tied = true;
    settings.parallel.pp = pp;
    const ir::Plan plan = make_plan(settings);
    on_ranks(settings, [&](Communicator& comm) {
      Parameters parameters(plan, comm.rank());
      for (StageParameters& stage : parameters.stages())
        for (UnitParameters& unit : stage.units) {
          if (unit.kind == ir::UnitKind::embedding) unit.grads[0].fill_(1.5);
          if (unit.kind == ir::UnitKind::head) unit.grads[1].fill_(0.25);
        }
      BlockPool pool;
    Update update(plan, parameters, comm, pool);
      update.begin_step();
      const int stage = comm.rank();
      update.reduce_tied(stage);
      if (pp == 1) update.reduce_tied(stage);  // one action for each copy: the second adds nothing
      for (StageParameters& mine : parameters.stages())
        for (UnitParameters& unit : mine.units) {
          if (unit.kind == ir::UnitKind::block) continue;
          const at::Tensor& grad = unit.grads[unit.kind == ir::UnitKind::head ? 1 : 0];
          for (std::int64_t i = 0; i < grad.numel(); ++i) ASSERT_EQ(grad.const_data_ptr<float>()[i], 1.75f);
        }
    });
  }
}

}  // namespace
}  // namespace fem::exec
