#include "executor/optimizer.hpp"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::make_plan;
using test::small_settings;

// Values that differ everywhere, from a formula.
void fill(const at::Tensor& t, double phase) {
  float* data = t.data_ptr<float>();
  for (std::int64_t i = 0; i < t.numel(); ++i)
    data[i] = static_cast<float>(0.3 * std::sin(phase + 0.7 * static_cast<double>(i)));
}

// Loshchilov and Hutter 2019, algorithm 2, in fp64.
struct Reference {
  double w, m = 0, v = 0;
  void step(double g, const ir::Settings& s, double lr, double decay, int t) {
    const auto& o = s.optimizer;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double mh = m / (1 - std::pow(o.beta1, t)), vh = v / (1 - std::pow(o.beta2, t));
    w -= lr * (mh / (std::sqrt(vh) + o.eps) + decay * w);
  }
};

TEST(AdamW, FollowsTheAlgorithmAndDecaysMatricesOnly) {
  const ir::Plan plan = make_plan(small_settings());
  Parameters parameters(plan, 0);
  StageParameters& stage = parameters.stages()[0];
  AdamW optimizer(plan.settings, stage);
  std::vector<std::vector<Reference>> references;
  for (UnitParameters& unit : stage.units)
    for (const at::Tensor& w : unit.masters) {
      fill(w, 1.0);
      references.emplace_back();
      for (std::int64_t i = 0; i < w.numel(); ++i) references.back().push_back({w.const_data_ptr<float>()[i]});
    }
  for (int t = 1; t <= 3; ++t) {
    const double lr = 0.01 * t;
    std::size_t p = 0;
    for (UnitParameters& unit : stage.units)
      for (std::size_t k = 0; k < unit.grads.size(); ++k, ++p) {
        fill(unit.grads[k], 2.0 * t);
        const double decay = unit.masters[k].dim() == 2 ? plan.settings.optimizer.weight_decay : 0.0;
        for (std::int64_t i = 0; i < unit.grads[k].numel(); ++i)
          references[p][static_cast<std::size_t>(i)].step(unit.grads[k].const_data_ptr<float>()[i], plan.settings, lr,
                                                          decay, t);
      }
    optimizer.step(lr, t);
  }
  std::size_t p = 0;
  for (UnitParameters& unit : stage.units)
    for (const at::Tensor& w : unit.masters) {
      for (std::int64_t i = 0; i < w.numel(); ++i)
        ASSERT_NEAR(w.const_data_ptr<float>()[i], references[p][static_cast<std::size_t>(i)].w, 2e-6) << p << " " << i;
      ++p;
    }
}

// The units of a stage one by one are the stage.
TEST(AdamW, UpdatesUnitsOneByOne) {
  const ir::Plan plan = make_plan(small_settings());
  Parameters whole(plan, 0), apart(plan, 0);
  for (Parameters* parameters : {&whole, &apart})
    for (UnitParameters& unit : parameters->stages()[0].units) {
      fill(unit.master, 1.0);
      fill(unit.grad, 2.0);
    }
  AdamW together(plan.settings, whole.stages()[0]), one_by_one(plan.settings, apart.stages()[0]);
  for (int t = 1; t <= 2; ++t) {
    together.step(0.1, t);
    for (std::size_t u = apart.stages()[0].units.size(); u-- > 0;) {
      const UnitParameters &mine = apart.stages()[0].units[u], &other = whole.stages()[0].units[u];
      EXPECT_FALSE(at::equal(mine.master, other.master));
      one_by_one.step(0.1, t, static_cast<int>(mine.unit));
      for (const auto tensor : {&UnitParameters::master, &UnitParameters::exp_avg, &UnitParameters::exp_avg_sq})
        EXPECT_TRUE(at::equal(mine.*tensor, other.*tensor));
    }
  }
}

TEST(AdamW, LeavesTheGapsBetweenParametersZero) {
  ir::Settings settings = small_settings();
  settings.model.hidden = 12;  // 12 elements of a norm in a gap of 32
  settings.model.head_dim = 4;
  const ir::Plan plan = make_plan(settings);
  Parameters parameters(plan, 0);
  parameters.initialise(settings, 1);
  UnitParameters& block = parameters.stages()[0].units[1];
  for (const at::Tensor& g : block.grads) fill(g, 1.0);
  AdamW(settings, parameters.stages()[0]).step(0.1, 1);
  for (const at::Tensor& flat : {block.master, block.grad, block.exp_avg})
    for (std::int64_t i = 12; i < 32; ++i) EXPECT_EQ(flat.const_data_ptr<float>()[i], 0.0f) << i;
  EXPECT_NE(block.exp_avg.const_data_ptr<float>()[11], 0.0f);
}

TEST(AdamW, WritesTheWorkingCopyInBf16AsTheRoundedMaster) {
  ir::Settings settings = small_settings();
  settings.precision.compute = "bf16";
  const ir::Plan plan = make_plan(settings);
  Parameters parameters(plan, 0);
  parameters.initialise(settings, 1);
  StageParameters& stage = parameters.stages()[0];
  for (UnitParameters& unit : stage.units)
    for (const at::Tensor& g : unit.grads) fill(g, 1.0);
  const at::Tensor before = stage.units[0].compute.clone();
  AdamW(settings, stage).step(0.1, 1);
  EXPECT_FALSE(at::equal(stage.units[0].compute, before));
  for (const UnitParameters& unit : stage.units) EXPECT_TRUE(at::equal(unit.compute, unit.master.to(at::kBFloat16)));
}

TEST(Parameters, InFp32TheWorkingCopyIsTheMaster) {
  const ir::Plan plan = make_plan(small_settings());
  Parameters parameters(plan, 0);
  for (const UnitParameters& unit : parameters.stages()[0].units)
    EXPECT_EQ(unit.compute.const_data_ptr(), unit.master.const_data_ptr());
}

TEST(Parameters, StartAt64ByteBoundariesInBothFormats) {
  ir::Settings settings = small_settings();
  settings.model.hidden = 12;
  settings.model.head_dim = 6;
  settings.precision.compute = "bf16";
  const ir::Plan plan = make_plan(settings);
  Parameters parameters(plan, 0);
  for (const UnitParameters& unit : parameters.stages()[0].units)
    for (const auto* views : {&unit.masters, &unit.params, &unit.grads, &unit.exp_avgs, &unit.exp_avg_sqs})
      for (const at::Tensor& view : *views) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.const_data_ptr()) % 64, 0u);
}

TEST(Parameters, InitialValuesDependOnSeedAndNameNotOnTheLayout) {
  ir::Settings settings = small_settings();
  const ir::Plan one = make_plan(settings);
  settings.parallel.pp = 4;
  const ir::Plan four = make_plan(settings);
  Parameters whole(one, 0), last(four, 3);
  whole.initialise(settings, 7);
  last.initialise(settings, 7);
  const auto units = last.stages()[0].units;
  for (std::size_t u = 0; u < units.size(); ++u)
    EXPECT_TRUE(at::equal(units[u].master, whole.stages()[0].units[4 + u].master)) << u;
  last.initialise(settings, 8);
  EXPECT_FALSE(at::equal(units.back().master, whole.stages()[0].units.back().master));
}

TEST(Parameters, IndexOfParametersIsTheirPlaceInTheModel) {
  const ir::Plan plan = make_plan(small_settings());
  Parameters parameters(plan, 0);
  std::int64_t next = 0;
  for (const UnitParameters& unit : parameters.stages()[0].units)
    for (std::size_t i = 0; i < unit.masters.size(); ++i)
      EXPECT_EQ(parameter_index(unit.unit, static_cast<std::int64_t>(i)), next++);
  EXPECT_EQ(parameter_slots(plan.settings), next);
}

}  // namespace
}  // namespace fem::exec
