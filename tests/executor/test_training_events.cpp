// Whole runs in one process: skipped steps, errors, stopping and going on, memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/CPUAllocator.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "executor/error.hpp"
#include "executor/weights/safetensors.hpp"
#include "executor/weights/checkpoint.hpp"
#include "executor/world.hpp"
#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using test::difference;
using test::make_plan;
using test::Outcome;
using test::small_settings;
using test::TemporaryFolder;
using test::train;
using testing::HasSubstr;

std::string error_of(const ir::Plan& plan, const RunOptions& options = {}) {
  try {
    train(plan, options);
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return "no error";
}

// Rewrites one tensor of a checkpoint's optimizer file.
void spoil(const std::filesystem::path& folder, const std::string& name, float value) {
  const auto path = *newest_checkpoint(folder) / "optimizer.safetensors";
  std::vector<NamedTensor> tensors;
  {
    const SafetensorsFile file(path);
    for (const TensorEntry& entry : file.tensors()) {
      tensors.push_back({entry.name, file.load(entry)});
      if (entry.name == name) tensors.back().tensor.fill_(value);
    }
  }
  write_safetensors(path, tensors);
}

TEST(SkippedSteps, AreCountedLoggedAndEndTheRunAfterTenInARow) {
  TemporaryFolder folder;
  ir::Settings settings = small_settings();
  settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 4000);
  RunOptions options;
  options.save = folder.path() / "save";
  train(make_plan(settings), options);
  spoil(options.save, "model.norm.weight.master", std::numeric_limits<float>::infinity());

  settings.run.steps = 40;
  settings.parallel.pp = 2;
  options.resume = options.save;
  options.save = folder.path() / "second";
  options.metrics = folder.path() / "metrics.jsonl";
  const std::string error = error_of(make_plan(settings), options);
  EXPECT_THAT(error, HasSubstr("step 13: 10 steps in a row were skipped"));  // steps 4 .. 13
  EXPECT_THAT(error, HasSubstr("loss of microbatch m0 on rank 1 (pp 1 dp 0) is not finite"));
  std::ifstream metrics(options.metrics);
  std::string text((std::istreambuf_iterator<char>(metrics)), {});
  EXPECT_THAT(text, HasSubstr("\"loss\":null"));
  EXPECT_THAT(text, HasSubstr("\"skipped\":10"));
}

// One gradient that is not finite: weights and moments stay, the run goes on, the rate does not advance.
TEST(SkippedSteps, LeaveWeightsAndMomentsAlone) {
  ir::Settings settings = small_settings();
  const ir::Plan plan = make_plan(settings);
  test::on_ranks(settings, [&](Communicator& comm) {
    const Topology topology(settings);
    Parameters parameters(plan, 0);
    parameters.initialise(settings, 1);
    Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
    std::vector<LoadedMicrobatch> batches(8);
    for (LoadedMicrobatch& loaded : batches) {
      loaded.batch.tokens = at::zeros({1, settings.batch.seq_len}, at::kLong);
      loaded.batch.targets = at::zeros({1, settings.batch.seq_len}, at::kLong);
    }
    StepInput input;
    input.lr = 0.1;
    input.batches = batches;
    UnitParameters& block = parameters.stages()[0].units[2];
    block.masters[4].data_ptr<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    const at::Tensor before = block.master.clone();
    const StepResult bad = interpreter.run(plan.programs[0], input);
    EXPECT_FALSE(bad.finite);
    EXPECT_THAT(bad.problem, HasSubstr("is not finite"));
    EXPECT_TRUE(test::same_bits(block.master, before));
    EXPECT_TRUE(at::zeros_like(block.exp_avg).equal(block.exp_avg));
    block.masters[4].data_ptr<float>()[3] = 0.0f;
    const StepResult good = interpreter.run(plan.programs[0], input);
    EXPECT_TRUE(good.finite);
    EXPECT_FALSE(test::same_bits(block.master, before));
  });
}

TEST(SkippedSteps, ABatchWithoutValidTargetsIsSkippedNotNaN) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = 2;
  const ir::Plan plan = make_plan(settings);
  test::on_ranks(settings, [&](Communicator& comm) {
    const Topology topology(settings);
    Parameters parameters(plan, comm.rank());
    parameters.initialise(settings, 1);
    Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
    std::vector<LoadedMicrobatch> batches(8);
    for (LoadedMicrobatch& loaded : batches) {
      loaded.batch.tokens = at::zeros({1, settings.batch.seq_len}, at::kLong);
      loaded.batch.targets = at::full({1, settings.batch.seq_len}, kIgnoredTarget, at::kLong);
    }
    StepInput input;
    input.lr = 0.1;
    input.batches = batches;
    const at::Tensor before = parameters.stages()[0].units[0].master.clone();
    StepResult result = interpreter.run(plan.programs[0], input);
    EXPECT_FALSE(result.finite);
    EXPECT_EQ(result.problem, "no valid target in the whole batch");
    EXPECT_EQ(result.metrics.loss_sum, 0.0);
    EXPECT_EQ(result.grad_norm, 0.0);
    EXPECT_TRUE(test::same_bits(parameters.stages()[0].units[0].master, before));
    // One valid target in one microbatch is enough.
    batches[5].batch.targets.data_ptr<std::int64_t>()[2] = 7;
    result = interpreter.run(plan.programs[0], input);
    EXPECT_TRUE(result.finite);
    EXPECT_EQ(result.metrics.tokens, 1);
  });
}

TEST(Errors, InOneRankEndAllAndAreReportedOnce) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = 4;
  settings.parallel.dp = 2;
  const ir::Plan plan = make_plan(settings);
  try {
    test::on_ranks(settings, [&](Communicator& comm) {
      const Topology topology(settings);
      Parameters parameters(plan, topology.coordinates(comm.rank()).pp);
      parameters.initialise(settings, 1);
      Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
      std::vector<LoadedMicrobatch> batches(4);
      for (LoadedMicrobatch& loaded : batches) {
        loaded.batch.tokens = at::zeros({1, settings.batch.seq_len}, at::kLong);
        loaded.batch.targets = at::zeros({1, settings.batch.seq_len}, at::kLong);
      }
      // A token outside the vocabulary: the unit's own check throws in the middle of the program.
      if (comm.rank() == 1) batches[2].batch.tokens.fill_(settings.model.vocab);
      StepInput input;
      input.step = 17;
      input.batches = batches;
      interpreter.run(plan.programs[0], input);
    });
    FAIL() << "no error";
  } catch (const ExecutionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 (pp 0 dp 1), step 17, Forward s0 m2: "));
    EXPECT_THAT(error.what(), HasSubstr("token id 61 at token 0"));
  }
}

TEST(Stop, InterruptedAndResumedEqualsUninterrupted) {
  for (int pp : {1, 2}) {
    TemporaryFolder folder;
    ir::Settings settings = small_settings();
    settings.parallel.pp = pp;
    settings.run.steps = 6;
    settings.optimizer.warmup_steps = 3;
    settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 900);  // several epochs
    const Outcome whole = train(make_plan(settings));

    // The flag is set before the first step: all ranks stop after it.
    const std::atomic<bool> stop{true};
    RunOptions options;
    options.save = folder.path() / "save";
    options.metrics = folder.path() / "metrics.jsonl";
    options.stop = &stop;
    const Outcome first = train(make_plan(settings), options);
    EXPECT_TRUE(first.summary.stopped);
    EXPECT_EQ(first.losses.size(), 1u);
    options.stop = nullptr;
    options.resume = options.save;
    settings.parallel.pp = 3 - pp;  // and in another layout
    const Outcome rest = train(make_plan(settings), options);
    EXPECT_EQ(rest.losses, whole.losses);  // the metrics file is continued
    EXPECT_EQ(rest.rates, whole.rates);
    EXPECT_EQ(difference(rest.weights, whole.weights), "");
    EXPECT_EQ(rest.summary.updates, 6);
  }
}

TEST(Stop, AResumedRunThatIsAlreadyDoneDoesNothing) {
  TemporaryFolder folder;
  ir::Settings settings = small_settings();
  settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 4000);
  RunOptions options;
  options.save = folder.path() / "save";
  const Outcome done = train(make_plan(settings), options);
  options.resume = options.save;
  const Outcome again = train(make_plan(settings), options);
  EXPECT_TRUE(again.losses.empty());
  EXPECT_EQ(difference(again.weights, done.weights), "");
}

TEST(Init, WeightsOfACheckpointStartAnotherRunAtStepOne) {
  TemporaryFolder folder;
  for (bool tied : {false, true}) {
    ir::Settings settings = small_settings();
    settings.model.tied = tied;
    settings.parallel.pp = 2;
    settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 4000);
    settings.run.seed = 5;
    settings.run.steps = 0;
    RunOptions options;
    options.save = folder.path() / (tied ? "tied" : "untied");
    const Outcome start = train(make_plan(settings), options);
    settings.run.steps = 3;
    const Outcome seeded = train(make_plan(settings));
    settings.run.seed = 6;
    settings.parallel.pp = 1;
    RunOptions from_weights;
    from_weights.init = options.save;
    const Outcome loaded = train(make_plan(settings), from_weights);
    EXPECT_EQ(loaded.losses, seeded.losses);
    EXPECT_EQ(difference(loaded.weights, seeded.weights), "");
    EXPECT_NE(train(make_plan(settings)).losses, seeded.losses);
  }
}

TEST(Inputs, AreRefusedBeforeAnythingRuns) {
  const ir::Plan plan = make_plan(small_settings());
  const auto refusal = [](const ir::Plan& bad, const RunOptions& options = {}) {
    try {
      open_inputs(bad, options, true);
    } catch (const ExecutionError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal(plan), HasSubstr("no training data: give --data PREFIX"));
  ir::Plan missing = plan;
  missing.settings.data.train = "/nonexistent/prefix";
  EXPECT_THAT(refusal(missing), HasSubstr("/nonexistent/prefix"));
  ir::Plan high = plan;
  high.level = ir::Level::Lane;
  EXPECT_THAT(refusal(high), HasSubstr("the plan is at level lane"));
  ir::Plan tensor = plan;
  tensor.settings.parallel.tp = 2;
  EXPECT_THAT(refusal(tensor), HasSubstr("parallel.tp=2"));
  ir::Plan no_eval = plan;
  TemporaryFolder folder;
  no_eval.settings.data.train = no_eval.settings.data.eval = test::write_tokens(folder.path(), 61, 4000);
  no_eval.programs.pop_back();
  EXPECT_THAT(refusal(no_eval), HasSubstr("no program 'eval'"));
}

// Counts what ATen has on the CPU.
class CountingAllocator final : public at::Allocator {
 public:
  explicit CountingAllocator(at::Allocator* inner) : inner_(inner) {}
  at::DataPtr allocate(std::size_t bytes) override {
    auto* block = static_cast<std::size_t*>(std::aligned_alloc(64, (bytes + 64 + 63) / 64 * 64));
    *block = bytes;
    live += static_cast<std::int64_t>(bytes);
    void* data = reinterpret_cast<char*>(block) + 64;
    return {data, data, &release, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  static void release(void* data) {
    char* block = static_cast<char*>(data) - 64;
    live -= static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block));
    std::free(block);
  }
  static inline std::atomic<std::int64_t> live{0};

 private:
  at::Allocator* inner_;
};

class CountedMemory {
 public:
  CountedMemory() : before_(c10::GetCPUAllocator()), counting_(before_) { c10::SetCPUAllocator(&counting_, 200); }
  ~CountedMemory() { c10::SetCPUAllocator(before_, 200); }

 private:
  at::Allocator* before_;
  CountingAllocator counting_;
};

TEST(Memory, ReturnsToTheBaselineBetweenRunsOfOneProcess) {
  TemporaryFolder folder;
  ir::Settings settings = small_settings();
  settings.parallel.pp = 2;
  settings.parallel.dp = 2;
  settings.data.train = test::write_tokens(folder.path(), settings.model.vocab, 4000);
  settings.data.eval = settings.data.train;
  const ir::Plan plan = make_plan(settings);
  run_world_local(plan, {});  // what libraries keep for good is there from now on
  const CountedMemory counted;
  for (int run = 0; run < 3; ++run) {
    run_world_local(plan, {});
    EXPECT_EQ(CountingAllocator::live.load(), 0) << "after run " << run;
  }
}

// Fresh memory filled with NaN gives the same bits: nothing is read before it is written.
TEST(Memory, PoisonedMemoryChangesNothing) {
  for (const char* compute : {"fp32", "bf16"}) {
    ir::Settings settings = small_settings();
    settings.precision.compute = compute;
    settings.parallel.pp = 2;
    settings.parallel.dp = 2;
    settings.model.tied = true;
    const ir::Plan plan = make_plan(settings);
    const Outcome plain = train(plan);
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    ASSERT_TRUE(std::isnan(at::empty({1}, at::kFloat).item<float>()));
    const Outcome poisoned = train(plan);
    at::globalContext().setDeterministicAlgorithms(false, false);
    EXPECT_EQ(poisoned.losses, plain.losses);
    EXPECT_EQ(poisoned.norms, plain.norms);
    EXPECT_EQ(difference(poisoned.weights, plain.weights), "");
  }
}

TEST(Output, ShowsLayoutPlanProgressAndWhatComesOut) {
  ir::Settings settings = small_settings();
  settings.parallel.pp = 2;
  settings.run.log_interval = 2;
  const Outcome outcome = train(make_plan(settings));
  for (const char* part :
       {"4 layers, hidden 16, 4 heads (2 kv), vocab 61", "pp=2 dp=1 tp=1 cp=1: 2 ranks, backend local",
        "s0 on pp 0 units 0..2, s1 on pp 1 units 3..5", "8 microbatches", "digest ", "step 2/3  loss ", "grad norm ",
        "lr ", "tokens/s", "elapsed ", "remaining 0:00", "step 3/3", "saved to "})
    EXPECT_THAT(outcome.text, HasSubstr(part));
  EXPECT_THAT(outcome.text, testing::Not(HasSubstr("step 1/3")));
}

TEST(Output, DurationText) {
  EXPECT_EQ(duration_text(5.4), "0:05");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(3600), "1:00:00");
}

}  // namespace
}  // namespace fem::exec
