// Dry runs: what a plan's ranks would hold, on the Meta device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "executor/comm/null_communicator.hpp"
#include "executor/dry_run.hpp"
#include "executor/error.hpp"
#include "executor/interpreter.hpp"
#include "executor/meta_operators.hpp"
#include "executor/world.hpp"
#include "ir/beside_blocks.hpp"
#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::make_plan;
using test::small_settings;
using testing::HasSubstr;

at::TensorOptions meta(at::ScalarType type) { return at::TensorOptions(type).device(c10::kMeta); }

TEST(SizeAllocator, CountsSizesAndGivesEachItsOwnAddress) {
  track_allocations(c10::DeviceType::Meta);
  CountAllocations allocations;
  const MemoryCounter& counter = allocations.counter();
  at::Tensor a = at::empty({10}, meta(at::kFloat)), b = at::empty({3}, meta(at::kBFloat16));
  EXPECT_EQ(counter.now.load(), 46);
  EXPECT_NE(a.const_data_ptr(), nullptr);
  EXPECT_NE(a.const_data_ptr(), b.const_data_ptr());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.const_data_ptr()) % ir::kBufferAlignment, 0u);
  const at::Tensor view = a.narrow(0, 2, 3);
  EXPECT_EQ(counter.now.load(), 46) << "a view is no memory";
  a = b = at::Tensor();
  EXPECT_EQ(counter.now.load(), 40) << "the view holds it";
  EXPECT_EQ(counter.peak.load(), 46);
}

TEST(SizeAllocator, TellsOfEachNewPeak) {
  track_allocations(c10::DeviceType::Meta);
  CountAllocations allocations;
  int peaks = 0;
  allocations.counter().at_new_peak = [&] { ++peaks; };
  at::Tensor a = at::empty({10}, meta(at::kFloat));
  EXPECT_EQ(peaks, 1);
  a = at::Tensor();
  const at::Tensor equal = at::empty({10}, meta(at::kFloat));
  EXPECT_EQ(peaks, 1) << "the same height is no new peak";
  const at::Tensor more = at::empty({1}, meta(at::kFloat));
  EXPECT_EQ(peaks, 2);
  allocations.counter().at_new_peak = nullptr;
}

void expect_alike(const at::Tensor& meta, const at::Tensor& real) {
  EXPECT_TRUE(meta.is_meta());
  EXPECT_EQ(meta.sizes(), real.sizes());
  EXPECT_EQ(meta.strides(), real.strides());
  EXPECT_EQ(meta.scalar_type(), real.scalar_type());
}

// The shapes-only kernels give what the CPU's operators give. Operands as the units make them: heads and positions
// swapped in a buffer [batch, positions, heads, head_dim].
TEST(MetaOperators, GiveTheShapesOfTheCpuOperators) {
  register_meta_operators();
  register_meta_operators();  // again: no error
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto operand = [&](c10::Device device) {
      return at::zeros({2, 5, 3, 8}, at::TensorOptions(type).device(device)).transpose(1, 2);
    };
    const at::Tensor real = operand(c10::kCPU), dry = operand(c10::kMeta);
    const auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(real, real, real, 0.0, true);
    const auto [dry_y, dry_lse] = at::_scaled_dot_product_flash_attention_for_cpu(dry, dry, dry, 0.0, true);
    expect_alike(dry_y, y);
    expect_alike(dry_lse, lse);
    const auto [q, k, v] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(y, real, real, real, y, lse, 0.0, true);
    const auto [dry_q, dry_k, dry_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dry_y, dry, dry, dry, dry_y, dry_lse, 0.0, true);
    expect_alike(dry_q, q);
    expect_alike(dry_k, k);
    expect_alike(dry_v, v);
  }
}

// Both ways to multiply, whichever this machine would choose: every operator of every phase has a Meta kernel, and what
// operators return beside the planned memory is within what ir/units.def declares.
TEST(UnitsOnMeta, OperatorsAllocateNoMoreThanIsDeclared) {
  track_allocations(c10::DeviceType::Meta);
  register_meta_operators();
  for (const char* compute : {"fp32", "bf16"})
    for (const std::int64_t kv_heads : {2, 4}) {
      ir::Settings settings = small_settings();
      settings.precision.compute = compute;
      settings.model.kv_heads = kv_heads;
      const ir::Plan plan = make_plan(settings);
      const auto dims = ir::unit_dims(settings);
      const auto formats = ir::unit_formats(settings);
      Parameters parameters(plan, 0, {}, c10::kMeta);
      const at::Tensor memory = at::empty({1 << 24}, meta(at::kByte));
      const auto block = [&](int i) { return static_cast<std::byte*>(memory.mutable_data_ptr()) + i * (1 << 20); };
      const UnitBuffers at{block(0), block(1), block(2), block(3), block(4), block(5), block(6), block(7)};
      for (const Arithmetic arithmetic : {Arithmetic::Direct, Arithmetic::ThroughFloat32})
        for (UnitParameters& unit : parameters.stages()[0].units) {
          Unit run(settings, unit.unit, unit.params, unit.grads, arithmetic);
          const auto within = [&](ir::Phase phase, const auto& call) {
            CountAllocations allocations;
            call();
            EXPECT_LE(allocations.counter().peak.load(), ir::hidden_bytes(unit.kind, phase, dims, formats))
                << ir::name(unit.kind) << " phase " << static_cast<int>(phase) << " in " << compute;
            return allocations.counter().peak.load();
          };
          LossSum loss;
          const Microbatch none;
          const std::int64_t taken = within(ir::Phase::forward, [&] { run.forward(at, none, &loss); });
          EXPECT_EQ(taken > 0, unit.kind == ir::UnitKind::block) << "flash attention returns fresh tensors";
          within(ir::Phase::forward, [&] { run.recompute(at, none, Recompute::everything); });
          within(ir::Phase::forward, [&] { run.recompute(at, none, Recompute::cheap); });
          within(ir::Phase::backward_input, [&] { run.backward_input(at); });
          EXPECT_EQ(within(ir::Phase::backward_weight, [&] { run.backward_weight(at); }), 0);
        }
    }
}

// What is there after the first step is all there will be, and goes with the interpreter. The peak may rise once more:
// what operators return for a moment then comes on top of all the blocks.
TEST(DryRun, LaterStepsHoldNoMoreThanTheFirst) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = settings.parallel.dp = 2;
  settings.model.tied = true;
  const ir::Plan plan = make_plan(settings);
  dry_run(plan);  // the allocator and the operators of Meta are there from now on
  const Topology topology(plan);
  World world;
  world.push_back(make_null_communicator(topology, 0));
  run_ranks(world, [&](Communicator& comm) {
    CountAllocations allocations;
    const MemoryCounter& counter = allocations.counter();
    {
      Parameters parameters(plan, 0, {0, 2}, c10::kMeta);
      const std::int64_t state = counter.now.load();
      Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
      EXPECT_EQ(counter.now.load() - state, ir::constant_bytes(plan, 0));
      const StepResult first = interpreter.run(*plan.find("train"), {.step = 1, .update = 1});
      EXPECT_TRUE(first.finite) << "a step without numbers runs to its end, the optimizer included";
      const std::int64_t held = counter.now.load();
      EXPECT_GT(held, 0);
      interpreter.run(*plan.find("train"), {.step = 2, .update = 2});
      EXPECT_EQ(counter.now.load(), held);
      const std::int64_t peak = counter.peak.load();
      interpreter.run(*plan.find("train"), {.step = 3, .update = 3});
      EXPECT_EQ(counter.now.load(), held);
      EXPECT_EQ(counter.peak.load(), peak);
    }
    EXPECT_EQ(counter.now.load(), 0);
  });
}

TEST(DryRun, FindsTheSameInEveryRunOfOneProcess) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = settings.parallel.dp = 2;
  settings.precision.compute = "bf16";
  const ir::Plan plan = make_plan(settings);
  const std::string first = dry_run_table(dry_run(plan));
  EXPECT_EQ(dry_run_table(dry_run(plan)), first);
  EXPECT_THAT(first, HasSubstr("peak reached at"));
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 3) << first;
}

TEST(DryRun, OfOneRankAlone) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = 2;
  settings.parallel.dp = 3;
  settings.batch.global = 6;
  const ir::Plan plan = make_plan(settings);
  const std::vector<DryRank> ranks = dry_run(plan, 1);
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].rank, 3);
  EXPECT_EQ(ranks[0].at, (Coordinates{.pp = 1}));
  EXPECT_EQ(ranks[0].memory.allocator_peak, dry_run(plan)[1].memory.allocator_peak);
  EXPECT_THROW(check_dry_run_plan(plan, 2), ExecutionError);
  EXPECT_THROW(check_dry_run_plan(plan, -1), ExecutionError);
}

// Sums of gradients over 2 replicas through LibTorch-free scratch: what the local backend takes is what is foretold.
TEST(DryRun, ForetellsTheCommunicatorsScratch) {
  for (const std::size_t elements : {1u, 2u, 3u, 1000u, 2u * 256u * 1024u + 2u, 3'000'001u}) {
    ir::Settings settings = small_settings();
    settings.parallel.dp = 2;
    const auto dry = make_null_communicator(Topology(settings), 0);
    dry->all_reduce_sum(ir::Group::dp, {static_cast<float*>(nullptr), elements});
    const std::size_t reduced = dry->scratch_bytes();
    dry->reduce_scatter_sum(ir::Group::dp, {static_cast<float*>(nullptr), elements / 2 * 2});
    test::on_ranks(settings, [&](Communicator& comm) {
      std::vector<float> data(elements);
      comm.all_reduce_sum(ir::Group::dp, data);
      EXPECT_EQ(comm.scratch_bytes(), reduced);
      comm.reduce_scatter_sum(ir::Group::dp, std::span(data).first(elements / 2 * 2));
      EXPECT_EQ(comm.scratch_bytes(), dry->scratch_bytes());
    });
  }
}

}  // namespace
}  // namespace fem::exec
