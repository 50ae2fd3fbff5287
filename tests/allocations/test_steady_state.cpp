// After its first step a program takes nothing from the heap, but for what LibTorch takes inside of units.
#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <set>

#include <ATen/ops/empty.h>

#include "counting.hpp"
#include "executor/interpreter.hpp"
#include "executor/units/arithmetic.hpp"
#include "ir/replicas.hpp"
#include "ir/text.hpp"
#include "ir/units.hpp"
#include "tests/executor/configured_plan.hpp"
#include "tests/executor/support.hpp"

namespace fem::exec::test {
namespace {

using ir::ActionKind;

// What the libraries take in one call of the embedding, a block or the head, at most, by how products are made: in
// fp32; in bf16 through fp32, where the CPU has no bf16 instructions; in bf16 by oneDNN, which makes a primitive
// every time.
struct Allowance {
  ActionKind action;
  std::array<int, 3> float32, through_float32, direct;
};

// A block's forward: 31 of flash attention, in bf16 40, and 5 of each RMS norm; of its backward 59, and 2 of each sum.
// The head: 5 of its norm, 2 of a sum over the vocabulary; then 2 of each of two sums. The objects are views and
// buffers a thread. oneDNN takes about 180 a product, and three times as many where it adds to its result.
constexpr Allowance kAllowances[] = {
    {ActionKind::Forward, {0, 41, 7}, {0, 50, 7}, {0, 1400, 200}},
    {ActionKind::Recompute, {0, 41, 7}, {0, 50, 7}, {0, 1400, 200}},
    {ActionKind::BackwardInput, {0, 63, 4}, {0, 63, 4}, {0, 4200, 200}},
    {ActionKind::BackwardWeight, {0, 0, 0}, {0, 0, 0}, {0, 1300, 200}},
    {ActionKind::Backward, {0, 63, 4}, {0, 63, 4}, {0, 5500, 400}},
};

struct Case {
  std::string name;
  std::vector<std::string> set;  // settings beside those of the model
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"1f1b", {"parallel.dp=2"}},
      {"gpipe_tied", {"schedule.name=gpipe", "model.tied=true"}},
      {"interleaved_zero1", {"schedule.name=interleaved_1f1b", "parallel.dp=2", "parallel.zero=1"}},
      {"zb_zero2", {"schedule.name=zb_h1", "parallel.dp=2", "parallel.zero=2", "parallel.reduce=microbatch"}},
      {"zb_v_zero3", {"schedule.name=zb_v", "parallel.dp=2", "parallel.zero=3", "parallel.reduce=microbatch"}},
      {"zero3_full", {"parallel.dp=2", "parallel.zero=3", "memory.recompute=full"}},
      {"selective", {"schedule.name=zb_h1", "memory.recompute=selective"}},
      {"dualpipe", {"schedule.name=dualpipe"}},
      {"shard_groups", {"parallel.dp=4", "parallel.zero=3", "parallel.shard=2"}},
      {"offload", {"schedule.name=gpipe", "memory.offload=saved", "memory.offload_gap=4"}},
      {"offload_optimizer", {"parallel.dp=2", "parallel.zero=1", "memory.offload=optimizer"}},
      {"lanes", {"parallel.dp=2", "overlap.lanes=true"}},
      {"lanes_offload", {"schedule.name=gpipe", "overlap.lanes=true", "memory.offload=all", "memory.offload_gap=4"}},
      {"lanes_zero3", {"schedule.name=zb_v", "parallel.dp=2", "parallel.zero=3", "parallel.reduce=microbatch",
                       "memory.recompute=full", "overlap.lanes=true"}},
  };
  return all;
}

ir::Plan plan_of(const Case& c, const std::string& format) {
  const std::string text =
      "model: {layers: 4, hidden: 64, intermediate: 96, heads: 4, kv_heads: 2, vocab: 128}\n"
      "parallel: {pp: 2}\nbatch: {global: 16, micro: 1, seq_len: 32}\nprecision: {compute: " + format + "}\n";
  return configured_plan(text, c.set);
}

std::vector<LoadedMicrobatch> batches_of(const ir::Settings& settings, int count) {
  std::vector<LoadedMicrobatch> batches(static_cast<std::size_t>(count));
  std::int64_t next = 1;
  for (LoadedMicrobatch& loaded : batches)
    for (at::Tensor* tensor : {&loaded.batch.tokens, &loaded.batch.targets}) {
      *tensor = at::empty({settings.batch.micro, settings.batch.seq_len}, at::kLong);
      for (std::int64_t i = 0; i < tensor->numel(); ++i)
        tensor->data_ptr<std::int64_t>()[i] = next = (next * 29 + 7) % settings.model.vocab;
    }
  return batches;
}

// What an action may take: the sum over the units that it runs.
std::int64_t allowed(const ir::Plan& plan, const ir::Action& action) {
  const bool bf16 = plan.settings.precision.compute == "bf16";
  for (const Allowance& row : kAllowances) {
    if (row.action != action.kind) continue;
    const bool direct = bf16 && choose_arithmetic(at::kBFloat16) == Arithmetic::Direct;
    const auto& by_kind = direct ? row.direct : bf16 ? row.through_float32 : row.float32;
    const ir::Stage& stage = plan.stages[static_cast<std::size_t>(action.stage)];
    const int first = action.unit >= 0 ? action.unit : stage.first_unit;
    const int count = action.unit >= 0 ? 1 : stage.units;
    std::int64_t sum = 0;
    for (int unit = first; unit < first + count; ++unit)
      sum += by_kind[static_cast<std::size_t>(ir::unit_kind(plan.settings, unit))];
    return sum;
  }
  return 0;
}

// A batch of transfers, or an overlapped pair, is one action.
std::int64_t allowed(const ir::Plan& plan, std::span<const ir::Action> batch) {
  std::int64_t sum = 0;
  for (const ir::Action& action : batch) sum += allowed(plan, action);
  return sum;
}

// One rank's part in a plan, ready to run steps of it.
class RankOfPlan {
 public:
  RankOfPlan(const ir::Plan& plan, Communicator& comm, LaneMode lanes)
      : plan_(plan), topology_(plan), here_(topology_.coordinates(comm.rank())),
        parameters_(plan, here_.pp,
                    {comm.group_rank(ir::piece_group(plan.settings)), comm.group_size(ir::piece_group(plan.settings))}),
        interpreter_(plan, topology_, comm, parameters_, comm.progress(), lanes),
        batches_(batches_of(plan.settings, plan.programs[0].microbatches)) {
    parameters_.initialise(plan.settings, 1);
  }
  std::span<const ir::Action> actions() const {
    return plan_.programs[0].ranks[static_cast<std::size_t>(here_.pp)].actions;
  }
  void run(int step) {
    StepInput input;
    input.step = input.update = step;
    input.lr = 1e-3;
    input.batches = batches_;
    EXPECT_TRUE(interpreter_.run(plan_.programs[0], input).finite);
  }

 private:
  const ir::Plan& plan_;
  const Topology topology_;
  const Coordinates here_;
  Parameters parameters_;
  Interpreter interpreter_;
  const std::vector<LoadedMicrobatch> batches_;
};

class SteadyState : public testing::TestWithParam<std::tuple<Case, const char*>> {};

// Lanes run inline: then a rank is one thread, and Progress tells its action.
TEST_P(SteadyState, ActionsTakeNothingFromTheHeap) {
  const auto& [c, format] = GetParam();
  const ir::Plan plan = plan_of(c, format);
  on_ranks(plan, [&](Communicator& comm) {
    RankOfPlan rank(plan, comm, LaneMode::Inline);
    const std::span<const ir::Action> actions = rank.actions();
    rank.run(1);
    std::vector<std::int64_t> counts(actions.size() + 1);
    for (int step = 2; step <= 3; ++step) {
      std::fill(counts.begin(), counts.end(), 0);
      {
        const Counting counting(comm.progress(), counts);
        rank.run(step);
      }
      for (std::size_t i = 0; i < actions.size(); i += ir::batch_size(actions, i)) {
        const auto batch = actions.subspan(i, ir::batch_size(actions, i));
        EXPECT_LE(counts[i], allowed(plan, batch))
            << "rank " << comm.rank() << ", step " << step << ", " << ir::action_text(batch);
      }
      EXPECT_EQ(counts.back(), 0) << "outside of actions, rank " << comm.rank() << ", step " << step;
    }
  });
}

// All threads of all ranks in one step: what lanes as threads add, and what they take, without telling whose it is.
class LaneThreads : public SteadyState {};

TEST_P(LaneThreads, TakeNothingFromTheHeapEither) {
  const auto& [c, format] = GetParam();
  const ir::Plan plan = plan_of(c, format);
  std::int64_t most = 0, before = 0, after = 0;
  for (std::int64_t replica = 0; replica < plan.settings.parallel.dp; ++replica)
    for (const ir::RankProgram& rank : plan.programs[0].ranks) most += allowed(plan, std::span(rank.actions));
  on_ranks(plan, [&](Communicator& comm) {
    RankOfPlan rank(plan, comm, LaneMode::Threads);
    rank.run(1);
    comm.barrier(ir::Group::world);
    if (comm.rank() == 0) before = counted_everywhere();
    comm.barrier(ir::Group::world);
    rank.run(2);
    comm.barrier(ir::Group::world);
    if (comm.rank() == 0) after = counted_everywhere();
    comm.barrier(ir::Group::world);
  });
  EXPECT_GT(after, before) << "flash attention at least";
  EXPECT_LE(after - before, most);
}

std::string name_of(const testing::TestParamInfo<std::tuple<Case, const char*>>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param);
}

std::vector<Case> lane_cases() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& c) { return !c.name.starts_with("lanes"); });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, SteadyState,
                         testing::Combine(testing::ValuesIn(cases()), testing::Values("fp32", "bf16")), name_of);
INSTANTIATE_TEST_SUITE_P(Plans, LaneThreads,
                         testing::Combine(testing::ValuesIn(lane_cases()), testing::Values("fp32", "bf16")), name_of);

// A case for each action that is executed.
TEST(Cases, HoldEveryAction) {
  std::set<ActionKind> held;
  for (const Case& c : cases()) {
    const ir::Plan plan = plan_of(c, "fp32");
    for (const ir::RankProgram& rank : plan.programs[0].ranks)
      for (const ir::Action& action : rank.actions) held.insert(action.kind);
  }
  for (int kind = 0; kind < ir::kActionKinds; ++kind) {
    const auto action = static_cast<ActionKind>(kind);
    EXPECT_TRUE(held.contains(action)) << ir::name(action);
  }
}

// The counter itself: a test that counts nothing would pass.
TEST(Counting, CountsEveryKindOfAllocation) {
  Progress progress;
  std::vector<std::int64_t> counts(3);
  {
    const Counting counting(progress, counts);
    progress.enter(1, 1);
    const std::vector<int> own(100);
    const at::Tensor tensor = at::empty({100}, at::kFloat);
    progress.leave();
    const std::string text(100, 'x');
  }
  EXPECT_EQ(counts[0], 0);
  EXPECT_GE(counts[1], 3) << "a vector, and a tensor's object and memory";
  EXPECT_EQ(counts[2], 1) << "a string";
}

}  // namespace
}  // namespace fem::exec::test
