// `search` beside another order, and times that are priced from the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/order_improver.hpp"
#include "compiler/priced_times.hpp"
#include "compiler/schedule_check.hpp"
#include "passes/cost_model.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Le;

// Values of the parameters forward, input, weight and transfer.
ScheduleCase with_times(const Schedule& s, int p, int m, std::vector<std::int64_t> times) {
  ScheduleCase c = sizes(s, p, m, s.chunks.value);
  std::ranges::copy(times, c.parameters.begin());
  return c;
}

Order order_of(const Schedule& s, const ScheduleCase& c) {
  ir::DiagnosticSink sink;
  auto order = generate_order(s, c, sink);
  EXPECT_TRUE(order) << s.name << "\n" << sink.text();
  return std::move(order).value();
}

OrderMeasures measure(const Schedule& s, const ScheduleCase& c, const OrderCosts& costs) {
  ir::DiagnosticSink sink;
  return measure_order(order_of(s, c), s.place(c), c.m, costs, sink).value();
}

double span_rate(const OrderMeasures& measures) {
  return static_cast<double>(measures.stage_span_bubble) / static_cast<double>(measures.stage_span);
}

// Rates replayed from the rules of arXiv 2405.15362 at F, B, W = 10, 12, 8 and p = 8, m = 24, to a tenth of a percent;
// peaks as the rules have.
TEST(SearchStart, KnownTimesShortenTheSpanUnderTheSamePeak) {
  for (const auto& [name, rate, peak] : {std::tuple{"zb_v", .0325, 16}, {"v_half", .1385, 10}, {"v_min", .2845, 8}}) {
    const Schedule s = schedule(name);
    const OrderMeasures measures = measure(s, with_times(s, 8, 24, {10, 12, 8, 0}), {10, 12, 8});
    EXPECT_LE(span_rate(measures), rate) << name;
    EXPECT_THAT(measures.peak_in_flight, Each(Le(peak))) << name;
    EXPECT_LE(measures.stage_span, measure(s, with_times(s, 8, 24, {1, 1, 1, 0}), {10, 12, 8}).stage_span) << name;
  }
}

// Beside phases without idle time the search has nothing to find: the published order, operation for operation.
TEST(SearchStart, EqualTimesKeepThePublishedOrder) {
  for (const char* name : {"zb_v", "v_half", "v_min"}) {
    const Schedule s = schedule(name);
    EXPECT_EQ(order_texts(s, with_times(s, 4, 8, {1, 1, 1, 0})), order_texts(s, with_times(s, 4, 8, {7, 7, 7, 0})));
  }
}

constexpr std::string_view kHead =
    "name: x\nreference: none\nplacement: loop\nchunks: 1\nbackward: split\n"
    "phases: [{repeat: m, do: [F]}, {repeat: m, do: [I, W]}]\n";

std::string errors_of(const std::string& text) {
  ir::DiagnosticSink sink;
  const auto s = read_schedule(source(text, "x.yaml"), sink);
  if (s) {
    EXPECT_FALSE(generate_order(*s, sizes(*s, 2, 4, 1), sink));
  }
  return sink.text();
}

TEST(SearchStart, RefusalsNameTheCause) {
  const std::string head(kHead);
  EXPECT_THAT(
      errors_of(head + "search: {cap: 3}\n"),
      HasSubstr("x.yaml:7:15: error: the cap is 3, but the order that the search begins with takes 4 on rank 0"));
  EXPECT_THAT(errors_of(head + "search: {}\n"), HasSubstr("a search needs 'cap'"));
  EXPECT_THAT(errors_of(head + "table: [a]\n"), HasSubstr("one order, but both 'phases' and 'table' are here"));
  EXPECT_THAT(errors_of("name: x\nreference: none\nplacement: v\nchunks: 2\nbackward: split\nsearch: {cap: 4}\n"),
              HasSubstr("a search needs an order to begin with"));
  EXPECT_THAT(errors_of("name: x\nreference: none\nplacement: loop\nchunks: 1\nbackward: split\n"
                        "phases: [{repeat: m, do: [F, B]}]\nsearch: {cap: 4}\n"),
              HasSubstr("a search begins with F, I and W alone"));
  EXPECT_THAT(errors_of("name: x\nreference: none\nplacement: loop\nchunks: 1\nbackward: split\n"
                        "parameters: {a: {priced: G}}\nsearch: {cap: 4}\n"),
              HasSubstr("x.yaml:6:26: error: "));
  EXPECT_THAT(errors_of("name: x\nreference: none\nplacement: loop\nchunks: 1\nbackward: split\n"
                        "parameters: {a: {}}\nsearch: {cap: 4}\n"),
              HasSubstr("a default that is a map needs 'priced'"));
}

// A GPipe-like order of two ranks idles for (p - 1)(F + I) at least; under the same memory nothing has to.
TEST(SearchStart, AnyOrderCanBeTheStart) {
  ir::DiagnosticSink sink;
  const auto s = read_schedule(source(std::string(kHead) + "search: {cap: m, iterations: 4000}\n"), sink);
  ASSERT_TRUE(s) << sink.text();
  const ScheduleCase c = sizes(*s, 2, 8, 1);
  EXPECT_EQ(measure(*s, c, {}).stage_span, 24);
}

// Never longer than the start, and the cap kept, whatever the times: a seeded walk over times, sizes and caps.
TEST(SearchStart, NeverLongerThanTheStart) {
  std::uint64_t state = 1;
  const auto below = [&state](std::uint64_t bound) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::int64_t>((state >> 33) % bound);
  };
  const Schedule s = schedule("zb_v");
  for (int i = 0; i < 40; ++i) {
    const int p = 1 + static_cast<int>(below(5));
    const std::int64_t m = 2 * p - 1 + below(5);
    const SearchCosts costs{1 + below(9), 1 + below(9), 1 + below(9), below(4), 1, 0, -1, 2 * p + below(3)};
    const ScheduleCase c = sizes(s, p, m, 2);
    const Placement placement = s.place(c);
    const StepRows start = to_steps(order_of(s, c), placement).value();
    SpanEvaluator evaluator(placement, m, costs);
    const StepRows found = improve_order(start, placement, m, costs, {300, static_cast<std::uint64_t>(i)});
    EXPECT_LE(evaluator.spans(found).value(), evaluator.spans(start).value());
    EXPECT_TRUE(fits_into_cap(found, costs));
    EXPECT_EQ(found, improve_order(start, placement, m, costs, {300, static_cast<std::uint64_t>(i)}));
  }
}

ir::Settings settings(const std::string& text) {
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(source(text), {}, sink);
  if (!configuration) throw std::runtime_error(sink.text());
  return configuration->settings();
}

// A block's matrix products cost as much in I as in F, attention's scores twice; W has the weights' products alone, and
// the head has as many of each. Counted for one block from ir/units.def.
TEST(PricedTimes, CountsOperationsOfTheWholeModel) {
  const ir::Settings s = settings(config_text(4, 2, 4));
  const ir::UnitDims dims = ir::unit_dims(s);
  const auto sum = [&](auto flops) {
    return 4 * static_cast<double>((ir::info(ir::UnitKind::block).*flops)(dims)) +
           static_cast<double>((ir::info(ir::UnitKind::embedding).*flops)(dims)) +
           static_cast<double>((ir::info(ir::UnitKind::head).*flops)(dims));
  };
  const PricedTimes times = price_times(s, {PlacementKind::Loop, 2, 1}, nullptr);
  const double forward = sum(&ir::UnitInfo::flops_forward);
  EXPECT_EQ(times.forward, 1'000'000);
  EXPECT_NEAR(static_cast<double>(times.input), 1e6 * sum(&ir::UnitInfo::flops_backward_input) / forward, 1);
  EXPECT_NEAR(static_cast<double>(times.weight), 1e6 * sum(&ir::UnitInfo::flops_backward_weight) / forward, 1);
  EXPECT_EQ(times.transfer, 0);
  EXPECT_GT(times.input, times.weight);  // attention's scores have no weights
}

TEST(PricedTimes, ProfileMeasurementsReplaceThat) {
  const ir::Settings s = settings(config_text(4, 2, 4));
  passes::HardwareProfile profile;
  profile.matmul.fill(1e12);
  profile.memory_bandwidth = 1e11;
  profile.links.fill({1e-6, 1e10});
  for (auto& unit : profile.measured.unit) unit = {0, 0, 0, {}};
  profile.measured.unit[static_cast<std::size_t>(ir::UnitKind::block)] = {1e-3, 1.5e-3, .5e-3, {}};
  profile.measured.p2p = 2e-4;
  const PricedTimes units = price_times(s, {PlacementKind::Loop, 2, 1}, &profile);  // two blocks a stage
  EXPECT_EQ(units.input, 1'500'000);
  EXPECT_EQ(units.weight, 500'000);
  EXPECT_EQ(units.transfer, 100'000);
  profile.measured.stage[0] = profile.measured.stage[1] = {4e-3, 4e-3, 4e-3, {}};
  const PricedTimes stages = price_times(s, {PlacementKind::Loop, 2, 1}, &profile);
  EXPECT_EQ(stages.input, 1'000'000);
  EXPECT_EQ(stages.weight, 1'000'000);
  EXPECT_EQ(stages.transfer, 50'000);
}

// What is given wins, and makes its unit that of the others: they are 1, 1, 1 and 0 then.
TEST(PricedTimes, GivenParametersWin) {
  const Schedule s = schedule("zb_2p");
  const PricedTimes times{10, 12, 8, 3};
  const auto scope = [&](std::vector<std::optional<std::int64_t>> given) {
    ir::DiagnosticSink sink;
    return parameter_scope(s, 4, 8, 1, given, sink, times).value();
  };
  EXPECT_EQ(scope({}), (std::vector<std::int64_t>{4, 8, 1, 10, 12, 8, 3}));
  EXPECT_EQ(scope({{}, 5, {}, {}}), (std::vector<std::int64_t>{4, 8, 1, 1, 5, 1, 0}));
}

// The planner's own order is the one that the priced times give.
TEST(PricedTimes, PlannerPricesTheModel) {
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(source(config_text(8, 4, 6)), {}, sink);
  const Schedule s = schedule("zb_2p");
  const auto bound = bind_schedule(*configuration, s, sink);
  ASSERT_TRUE(bound) << sink.text();
  const PricedTimes times = price_times(configuration->settings(), {PlacementKind::Loop, 4, 1}, nullptr);
  EXPECT_EQ(bound->parameters, (std::vector<std::int64_t>{times.forward, times.input, times.weight, times.transfer}));
}

}  // namespace
}  // namespace fem::compiler::test
