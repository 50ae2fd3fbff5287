// What the interpreter itself costs: programs whose units are empty, so that nothing but the loop, the bookkeeping of
// buffers and the waits is left. `time/action` is per action of the program.
#include <benchmark/benchmark.h>

#include <ATen/ops/zeros.h>

#include "executor/comm/null_communicator.hpp"
#include "executor/interpreter.hpp"
#include "executor/world.hpp"
#include "ir/builder.hpp"

namespace fem::exec {
namespace {

constexpr int kMicrobatches = 1000;

ir::Settings settings(int pp) {
  ir::Settings s;
  s.model.layers = 1;
  s.model.hidden = 64;
  s.model.intermediate = 64;
  s.model.heads = s.model.kv_heads = 1;
  s.model.vocab = 64;
  s.parallel.pp = pp;
  s.batch.global = kMicrobatches;
  s.batch.seq_len = 64;
  return s;
}

// A stage a rank: `units` on the first, the head alone on the last; or none at all.
ir::Plan plan_of(int pp, int units, const std::vector<std::vector<ir::Action>>& ranks) {
  ir::Plan plan;
  plan.settings = settings(pp);
  plan.level = ir::Level::Communication;
  for (int s = 0; s < pp; ++s) {
    ir::Stage stage;
    stage.pp = static_cast<std::int16_t>(s);
    stage.prev = static_cast<std::int16_t>(s - 1);
    stage.next = static_cast<std::int16_t>(s + 1 == pp ? -1 : s + 1);
    stage.first_unit = static_cast<std::int16_t>(s == 0 ? 0 : units);
    stage.units = static_cast<std::int16_t>(s == 0 || units == 0 ? units : 1);
    plan.stages.push_back(stage);
  }
  ir::Program program{"train", false, kMicrobatches, {}};
  for (const std::vector<ir::Action>& actions : ranks) program.ranks.push_back({actions, {}});
  plan.programs.push_back(std::move(program));
  return plan;
}

void count(benchmark::State& state, const ir::Plan& plan) {
  state.counters["time/action"] =
      benchmark::Counter(static_cast<double>(plan.programs[0].ranks[0].actions.size()),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Runs rank 0's program alone: a communicator that talks to nobody returns at once.
void run_alone(benchmark::State& state, const ir::Plan& plan) {
  const Topology topology(plan);
  const auto comm = make_null_communicator(topology, 0);
  Parameters parameters(plan, 0);
  Interpreter interpreter(plan, topology, *comm, parameters, comm->progress());
  StepInput input;
  input.step = 1;
  for (auto _ : state) interpreter.run(plan.programs[0], input);
  count(state, plan);
}

void compute(benchmark::State& state) {
  std::vector<ir::Action> actions;
  for (int m = 0; m < kMicrobatches; ++m) {
    actions.push_back(ir::forward(0, m));
    actions.push_back(ir::backward(0, m));
  }
  run_alone(state, plan_of(1, 0, {actions}));
}

// Receives an activation and sends it on: what a transfer costs beside the transport.
void transfers(benchmark::State& state) {
  std::vector<ir::Action> actions;
  for (int m = 0; m < kMicrobatches; ++m) {
    actions.push_back(ir::recv_forward(1, m, 1));
    actions.push_back(ir::send_forward(0, m, 1));
  }
  run_alone(state, plan_of(2, 0, {actions, {}}));
}

// Two ranks, a thread each, hand one activation to and fro: every action waits for the other rank. The first units make
// it, the head ends it; between them lie a thousand round trips. Wall time.
void round_trips(benchmark::State& state) {
  std::vector<ir::Action> first{ir::forward(0, 0)}, second;
  for (int i = 0; i < kMicrobatches; ++i) {
    // What enters stage 1 is what leaves stage 0: whoever holds it may send it.
    first.push_back(ir::send_forward(0, 0, 1));
    second.push_back(ir::recv_forward(1, 0, 0));
    if (i + 1 == kMicrobatches) break;
    second.push_back(ir::send_forward(0, 0, 0));
    first.push_back(ir::recv_forward(1, 0, 1));
  }
  for (const ir::Action& action : {ir::forward(1, 0), ir::backward(1, 0), ir::send_backward(1, 0, 0)})
    second.push_back(action);
  for (const ir::Action& action : {ir::recv_backward(0, 0, 1), ir::backward(0, 0)}) first.push_back(action);
  const ir::Plan plan = plan_of(2, 2, {first, second});

  LoadedMicrobatch batch;
  batch.batch.tokens = batch.batch.targets = at::zeros({1, plan.settings.batch.seq_len}, at::kLong);
  const std::vector<LoadedMicrobatch> batches(kMicrobatches, batch);
  StepInput input;
  input.step = 1;
  input.batches = batches;
  World world = make_world(Backend::local, Topology(plan), {});
  run_ranks(world, [&](Communicator& comm) {
    const Topology topology(plan);
    Parameters parameters(plan, comm.rank());
    Interpreter interpreter(plan, topology, comm, parameters, comm.progress());
    std::int64_t go = 1;
    for (;;) {  // rank 0 knows whether there is another round
      if (comm.rank() == 0) go = state.KeepRunning();
      comm.broadcast(ir::Group::world, 0, &go, sizeof go);
      if (!go) break;
      interpreter.run(plan.programs[0], input);
    }
  });
  count(state, plan);
}

BENCHMARK(compute)->Unit(benchmark::kMicrosecond);
BENCHMARK(transfers)->Unit(benchmark::kMicrosecond);
BENCHMARK(round_trips)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace fem::exec

BENCHMARK_MAIN();
