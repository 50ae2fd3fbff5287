// How long each part of the compiler takes as programs grow. Arguments of a row: pipeline ranks / microbatches / chunks
// of the interleaved 1F1B schedule; `time/action` is per action of the program at communication level and should stay
// flat.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>
#include <memory>

#include "compiler/planner.hpp"
#include "compiler/schedule_files.hpp"
#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "passes/communication.hpp"
#include "passes/dependence.hpp"
#include "passes/manager.hpp"
#include "passes/simulate.hpp"

namespace fem {
namespace {

void require(bool ok, const ir::DiagnosticSink& sink) {
  if (ok) return;
  std::cerr << sink.text();
  std::abort();
}

// The configuration of a row: small layers, one microbatch of one sequence, on a mesh of pp x 256 ranks.
struct Input {
  compiler::Configuration configuration;
  compiler::Schedule schedule;
};

Input read_input(const benchmark::State& state, const std::string& schedule_name) {
  const auto p = std::to_string(state.range(0)), m = std::to_string(state.range(1)), v = std::to_string(state.range(2));
  const std::string text = "model: {layers: " + std::to_string(state.range(0) * state.range(2)) +
                           ", hidden: 64, intermediate: 128, heads: 2, vocab: 256}\n"
                           "parallel: {pp: " +
                           p +
                           ", dp: 256}\n"
                           "schedule: {name: " +
                           schedule_name + ", chunks: " + v +
                           "}\n"
                           "batch: {global: " +
                           std::to_string(256 * state.range(1)) + ", micro: 1, seq_len: 8}\n";
  ir::DiagnosticSink sink;
  auto configuration =
      compiler::read_configuration(std::make_shared<const ir::SourceText>("bench.yaml", text), {}, sink);
  require(configuration.has_value(), sink);
  auto schedule = compiler::load_schedule(
      schedule_name, compiler::default_schedule_folders(), [&](std::string why) { sink.error({}, why); }, sink);
  require(schedule.has_value(), sink);
  return {std::move(*configuration), std::move(*schedule)};
}

ir::Plan stage_plan(const benchmark::State& state) {
  const int p = static_cast<int>(state.range(0)), m = static_cast<int>(state.range(1)),
            v = static_cast<int>(state.range(2));
  return test::make_plan(test::Placement::Loop, p, v, m, test::interleaved(p, m, v, p));
}

ir::Plan lowered_plan(const benchmark::State& state) {
  ir::Plan plan = stage_plan(state);
  ir::DiagnosticSink sink;
  require(passes::lower_communication(plan.stages, plan.programs[0], sink), sink);
  plan.level = ir::Level::Communication;
  return plan;
}

void count_actions(benchmark::State& state, const ir::Plan& lowered) {
  std::size_t actions = 0;
  for (const ir::RankProgram& rank : lowered.programs[0].ranks) actions += rank.actions.size();
  state.counters["actions"] = static_cast<double>(actions);
  state.counters["time/action"] = benchmark::Counter(
      static_cast<double>(actions), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void lower(benchmark::State& state) {
  const ir::Plan plan = stage_plan(state);
  for (auto _ : state) {
    state.PauseTiming();
    ir::Program program = plan.programs[0];
    state.ResumeTiming();
    ir::DiagnosticSink sink;
    require(passes::lower_communication(plan.stages, program, sink), sink);
    benchmark::DoNotOptimize(program.ranks.data());
    state.PauseTiming();
    program = {};
    state.ResumeTiming();
  }
  count_actions(state, lowered_plan(state));
}

void plan(benchmark::State& state, const std::string& schedule) {
  const Input input = read_input(state, schedule);
  for (auto _ : state) {
    ir::DiagnosticSink sink;
    require(compiler::make_plan(input.configuration, input.schedule, sink).has_value(), sink);
  }
  count_actions(state, lowered_plan(state));
}

// From a configuration to a plan at communication level, verified before and after: what femc plan does but for
// printing.
void plan_lower_verify(benchmark::State& state, const std::string& schedule) {
  const Input input = read_input(state, schedule);
  ir::Plan last;
  for (auto _ : state) {
    ir::DiagnosticSink sink;
    auto plan = compiler::make_plan(input.configuration, input.schedule, sink);
    require(plan.has_value(), sink);
    const auto pipeline =
        passes::parse_pipeline(ir::SourceText("bench", passes::default_pipeline()), sink);
    require(pipeline && passes::run_pipeline(*pipeline, *plan, sink), sink);
    state.PauseTiming();
    last = std::move(*plan);
    state.ResumeTiming();
  }
  count_actions(state, last);
}

// The rows that only read the lowered plan.
template <class F>
void read_plan(benchmark::State& state, F f) {
  const ir::Plan plan = lowered_plan(state);
  for (auto _ : state) {
    ir::DiagnosticSink sink;
    require(f(plan, sink), sink);
  }
  count_actions(state, plan);
}

void verify(benchmark::State& state) {
  read_plan(state, [](const ir::Plan& plan, ir::DiagnosticSink& sink) { return ir::verify(plan, sink); });
}

void print(benchmark::State& state) {
  read_plan(state, [](const ir::Plan& plan, ir::DiagnosticSink&) { return !ir::print_plan(plan).empty(); });
}

void parse(benchmark::State& state) {
  const ir::Plan plan = lowered_plan(state);
  const std::string text = ir::print_plan(plan);
  for (auto _ : state) {
    ir::DiagnosticSink sink;
    const auto read = ir::parse_plan(ir::SourceText("plan", text), sink);
    require(read.has_value(), sink);
  }
  count_actions(state, plan);
  state.counters["MB"] = static_cast<double>(text.size()) * 1e-6;
}

void simulate_rendezvous(benchmark::State& state) {
  read_plan(state, [](const ir::Plan& plan, ir::DiagnosticSink& sink) {
    return passes::simulate(plan, plan.programs[0], passes::UnitCosts(), sink).has_value();
  });
}

void simulate_asynchronous(benchmark::State& state) {
  read_plan(state, [](const ir::Plan& plan, ir::DiagnosticSink& sink) {
    return passes::simulate(plan, plan.programs[0], passes::UnitCosts(), sink, {passes::Communication::Asynchronous})
        .has_value();
  });
}

void critical_path(benchmark::State& state) {
  read_plan(state, [](const ir::Plan& plan, ir::DiagnosticSink& sink) {
    return passes::critical_path(plan, plan.programs[0], passes::UnitCosts(), passes::RankOrder::Kept, sink)
        .has_value();
  });
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond);
  bench->Args({4, 16, 2})
      ->Args({8, 32, 2})
      ->Args({16, 64, 2})
      ->Args({32, 256, 2})
      ->Args({64, 512, 2})
      ->Args({64, 1024, 2});
}

BENCHMARK_CAPTURE(plan_lower_verify, interleaved_1f1b, "interleaved_1f1b")->Apply(sizes);
BENCHMARK_CAPTURE(plan_lower_verify, interleaved_zb, "interleaved_zb")->Apply(sizes);
BENCHMARK_CAPTURE(plan_lower_verify, zb_v, "zb_v")->Apply(sizes);
BENCHMARK_CAPTURE(plan_lower_verify, dualpipe_v, "dualpipe_v")->Apply(sizes);
BENCHMARK_CAPTURE(plan, interleaved_1f1b, "interleaved_1f1b")->Apply(sizes);
BENCHMARK_CAPTURE(plan, zb_v, "zb_v")->Apply(sizes);
BENCHMARK(lower)->Apply(sizes);
BENCHMARK(verify)->Apply(sizes);
BENCHMARK(print)->Apply(sizes);
BENCHMARK(parse)->Apply(sizes);
BENCHMARK(simulate_rendezvous)->Apply(sizes);
BENCHMARK(simulate_asynchronous)->Apply(sizes);
BENCHMARK(critical_path)->Apply(sizes);

}  // namespace
}  // namespace fem

BENCHMARK_MAIN();
