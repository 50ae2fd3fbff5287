// A schedule file, read: conditions, parameters, closed forms, and the generator of its order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/expression.hpp"
#include "compiler/order.hpp"
#include "compiler/placement.hpp"

namespace fem::compiler {

// The names of a file's expressions, and how far each expression sees. Every scope is a beginning of
//   p m v, parameters, r, names of `let`, F B I W.
struct ScheduleNames {
  std::vector<std::string> all;
  std::size_t parameters_end = 3;  // p, m, v and the parameters
  std::size_t lets_end = 4;        // and r and the names of `let`

  std::vector<std::string_view> until(std::size_t end) const;
};

// One application of a schedule: sizes, and values of the parameters in the file's order.
struct ScheduleCase {
  int p = 1;
  std::int64_t m = 1;
  int v = 1;
  std::vector<std::int64_t> parameters;
};

// What the planner knows of the model and the machine: the mean over all stages, in one unit.
struct PricedTimes {
  std::int64_t forward = 1, input = 1, weight = 1;  // of a stage and microbatch
  std::int64_t transfer = 0;                        // of a stage's output to the next rank
};
using PricedTime = std::int64_t PricedTimes::*;
std::span<const std::string_view> priced_names();  // "F", "I", "W", "transfer": in the order of the members
PricedTime priced_time(int name);

struct ScheduleParameter {
  std::string name;
  Expression value;  // the default; without a meaning where it is a priced time
  PricedTime priced = nullptr;

  std::string default_text() const;  // as in the file: "2 * p", "{priced: F}"
};
struct ScheduleLet {
  std::string name;
  Expression value;
};

// A message with {expression} inside: texts and expressions alternate, texts first and last.
struct MessageTemplate {
  std::vector<std::string> texts;
  std::vector<Expression> values;
  std::optional<std::string> format(std::span<const std::int64_t> scope, ir::DiagnosticSink& sink) const;
};

struct ScheduleRequire {
  Expression that;
  MessageTemplate message;
};

// What a closed form may be about; times in the unit of the costs, a chunk's forward being F.
enum class Measure : std::uint8_t { PeakInFlight, Makespan, StageSpan, MakespanBubble, StageSpanBubble };
std::span<const std::string_view> measure_names();  // "peak_in_flight", ...: in the order of the enum
std::string_view name(Measure measure);

struct ScheduleCheck {
  Measure what;
  Expression equals;  // sees r (peaks are per rank), and F, B, I, W as the costs
  std::optional<Expression> when;
};

inline constexpr int kMaxChunks = 64;

// Stages per rank that a schedule accepts; kMaxChunks as the upper bound stands for none.
struct ChunkRange {
  int value = 1, low = 1, high = 1;  // the default, and the bounds
};

struct Schedule;

// One way to write an order down (phases, table, ...), read from a file.
class OrderGenerator {
 public:
  virtual ~OrderGenerator() = default;
  // `lets` holds the scope of every rank up to ScheduleNames::lets_end. Errors point into the file.
  virtual std::optional<Order> generate(const ScheduleCase& sizes, const Placement& placement,
                                        std::span<const std::vector<std::int64_t>> lets,
                                        ir::DiagnosticSink& sink) const = 0;
};

struct Schedule {
  SourcePtr source;
  std::string name, reference;
  Position name_at, order_at;
  PlacementKind placement = PlacementKind::Loop;
  ChunkRange chunks;
  bool split = false;  // backward: split
  ScheduleNames names;
  std::vector<ScheduleParameter> parameters;
  std::vector<ScheduleLet> lets;
  std::vector<ScheduleRequire> require;
  std::vector<ScheduleCheck> check;
  std::string_view order_kind;  // "phases", "table", ...
  std::shared_ptr<const OrderGenerator> order;

  Placement place(const ScheduleCase& sizes) const { return {placement, sizes.p, sizes.v}; }
  ir::SourceLocation location(Position at) const { return {source->file(), at.line, at.column}; }
};

// Empty after diagnosed errors; as many as can be found are reported.
std::optional<Schedule> read_schedule(SourcePtr source, ir::DiagnosticSink& sink);

// Values of p, m, v and the parameters, in scope order. `given` sets parameters by index; the others get their
// defaults, `{priced: F}` and the like from `times`. Where one of these is given, its unit is not known: the others are
// then 1, 1, 1 and 0.
std::optional<std::vector<std::int64_t>> parameter_scope(const Schedule& schedule, int p, std::int64_t m, int v,
                                                         std::span<const std::optional<std::int64_t>> given,
                                                         ir::DiagnosticSink& sink, const PricedTimes& times = {});

// The first condition of `require` that does not hold, or null. Empty: a condition could not be evaluated.
std::optional<const ScheduleRequire*> broken_requirement(const Schedule& schedule, const ScheduleCase& sizes,
                                                         ir::DiagnosticSink& sink);

// p, m, v, parameters, r and the names of `let`, for every rank.
std::optional<std::vector<std::vector<std::int64_t>>> rank_scopes(const Schedule& schedule, const ScheduleCase& sizes,
                                                                  ir::DiagnosticSink& sink);

// Checks `require`, generates the order and checks it.
std::optional<Order> generate_order(const Schedule& schedule, const ScheduleCase& sizes, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
