#include "compiler/schedule_lint.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <numeric>

#include <fmt/format.h>

#include "compiler/planner.hpp"
#include "compiler/schedule_check.hpp"
#include "passes/manager.hpp"

namespace fem::compiler {
namespace {

// Equal times, unequal ones, and those that most formulas are written for.
constexpr std::array<OrderCosts, 3> kCosts = {{{1, 1, 1}, {10, 12, 8}, {2, 1, 1}}};

// Splits at commas outside parentheses.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// "1..8,16" as numbers from `low` to `high`, ascending.
std::optional<std::vector<int>> read_numbers(std::string_view option, std::string_view text, int low, int high,
                                             ir::DiagnosticSink& sink) {
  const auto number = [&](std::string_view word) -> std::optional<int> {
    int value = 0;
    const auto [stop, fault] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (fault == std::errc() && stop == word.data() + word.size() && value >= low && value <= high) return value;
    sink.error({std::string(option), 0, 0}, fmt::format("'{}' is not an integer from {} to {}", word, low, high));
    return std::nullopt;
  };
  std::vector<int> numbers;
  for (const std::string& part : split(text)) {
    const std::size_t dots = part.find("..");
    const auto first = number(std::string_view(part).substr(0, dots));
    const auto last = dots == std::string::npos ? first : number(std::string_view(part).substr(dots + 2));
    if (!first || !last) return std::nullopt;
    for (int x = *first; x <= *last; ++x) numbers.push_back(x);
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::optional<std::vector<LintPoint>> read_grid(const Schedule& schedule, const LintGrid& grid,
                                                ir::DiagnosticSink& sink) {
  const ChunkRange& chunks = schedule.chunks;
  const int most = std::min(chunks.high, std::max(chunks.value, chunks.low + kLintChunks - 1));
  const auto p = read_numbers("--p", grid.p, 1, 1024, sink);
  const auto v = read_numbers("--v", grid.v.empty() ? fmt::format("{}..{}", chunks.low, most) : grid.v, chunks.low,
                              chunks.high, sink);
  const auto source = std::make_shared<const ir::SourceText>("--m", grid.m);
  constexpr std::array<std::string_view, 2> kNames = {"p", "v"};
  std::vector<Expression> m;
  int column = 1;
  for (const std::string& part : split(grid.m)) {
    auto value = Expression::parse(ScalarText::plain(source, part, {1, column}), kNames, sink);
    if (value) m.push_back(std::move(*value));
    column += static_cast<int>(part.size()) + 1;
  }
  if (!p || !v || sink.has_errors()) return std::nullopt;
  std::vector<LintPoint> points;
  for (int pp : *p) {
    for (int vv : *v) {
      std::vector<std::int64_t> values;
      for (const Expression& expression : m) {
        const std::array<std::int64_t, 2> scope = {pp, vv};
        const auto value = expression.evaluate(scope, sink);
        if (!value) return std::nullopt;
        if (*value < 1) {
          expression.error(sink, fmt::format("'{}' is {} at p={} v={}: at least one microbatch is needed",
                                             expression.text(), *value, pp, vv));
          return std::nullopt;
        }
        values.push_back(*value);
      }
      std::ranges::sort(values);
      values.erase(std::unique(values.begin(), values.end()), values.end());
      for (std::int64_t mm : values) points.push_back({pp, mm, vv});
    }
  }
  return points;
}

// One block a stage, as small as the rules allow. Trained alone: the order of an evaluation is not the file's.
ir::Settings small_model(const Schedule& schedule, const ScheduleCase& sizes) {
  ir::Settings settings;
  settings.model.layers = sizes.p * sizes.v;
  settings.model.hidden = 8;
  settings.model.intermediate = 16;
  settings.model.heads = 2;
  settings.model.vocab = 16;
  settings.parallel.pp = sizes.p;
  settings.schedule.name = schedule.name;
  settings.schedule.chunks = sizes.v;
  settings.batch.global = sizes.m;
  settings.batch.seq_len = 4;
  return settings;
}

class Linter {
 public:
  explicit Linter(const Schedule& schedule)
      : schedule_(schedule),
        reached_(schedule.require.size(), 0),
        held_(schedule.require.size(), 0),
        compared_(schedule.check.size(), 0) {
    report_.refusals.resize(schedule.require.size());
  }

  LintReport run(const std::vector<LintPoint>& points, double seconds) {
    const auto start = std::chrono::steady_clock::now();
    for (const LintPoint& point : points) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      if (spent.count() > seconds) {
        report_.not_tried.push_back(point);
        continue;
      }
      if (report_.rows.empty() || report_.rows.back().p != point.p) report_.rows.push_back({.p = point.p});
      try_point(point, report_.rows.back());
    }
    check_use();
    ir::DiagnosticSink sink;
    check_schedule_text(schedule_, sink);
    add(sink, nullptr);
    return std::move(report_);
  }

 private:
  void try_point(const LintPoint& point, LintReport::Row& row) {
    ir::DiagnosticSink sink;
    const auto scope = parameter_scope(schedule_, point.p, point.m, point.v, {}, sink);
    const bool refused = scope && refuses(point, *scope, sink);
    if (scope && !refused && !sink.has_errors()) {
      const ScheduleCase sizes{point.p, point.m, point.v, {scope->begin() + 3, scope->end()}};
      prove(sizes, row, sink);
    }
    row.refused += refused && !sink.has_errors();
    row.failed += sink.has_errors();
    row.planned += !refused && !sink.has_errors();
    add(sink, &point);
  }

  // The conditions in their order, up to the first that does not hold: a later one may need it.
  bool refuses(const LintPoint& point, std::span<const std::int64_t> scope, ir::DiagnosticSink& sink) {
    for (std::size_t i = 0; i < schedule_.require.size(); ++i) {
      const ScheduleRequire& require = schedule_.require[i];
      const auto holds = require.that.evaluate(scope, sink);
      if (!holds) return false;
      ++reached_[i];
      held_[i] += *holds != 0;
      if (*holds) continue;
      const auto message = require.message.format(scope, sink);
      LintReport::Refusal& refusal = report_.refusals[i];
      if (message && refusal.points++ == 0) {
        refusal.first = point;
        refusal.message = *message;
      }
      return true;
    }
    return false;
  }

  // The order, its plan and its closed forms; what goes wrong is in the sink.
  void prove(const ScheduleCase& sizes, LintReport::Row& row, ir::DiagnosticSink& sink) {
    const auto order = generate_order(schedule_, sizes, sink);
    if (!order) return;
    const Placement placement = schedule_.place(sizes);
    const std::vector<std::int64_t> blocks(static_cast<std::size_t>(sizes.p * sizes.v), 1);
    ir::Plan plan = plan_of_order(small_model(schedule_, sizes), *order, placement, sizes.m, blocks);
    const auto pipeline = passes::parse_pipeline(ir::SourceText("", std::string(passes::default_pipeline())), sink);
    if (!pipeline || !passes::run_pipeline(*pipeline, plan, sink)) return;
    const int before = std::accumulate(compared_.begin(), compared_.end(), 0);
    for (const OrderCosts& costs : kCosts) {
      if (!check_closed_forms(schedule_, sizes, *order, costs, compared_, sink)) break;
    }
    row.comparisons += std::accumulate(compared_.begin(), compared_.end(), 0) - before;
  }

  void check_use() {
    ir::DiagnosticSink sink;
    for (std::size_t i = 0; i < schedule_.require.size(); ++i) {
      if (reached_[i] == 0 || held_[i] > 0) continue;
      schedule_.require[i].that.error(sink, fmt::format("this condition holds nowhere on the grid ({} point{})",
                                                        reached_[i], reached_[i] == 1 ? "" : "s"));
    }
    const bool planned = std::ranges::any_of(report_.rows, [](const LintReport::Row& row) { return row.planned > 0; });
    for (std::size_t i = 0; i < schedule_.check.size() && planned; ++i) {
      const ScheduleCheck& check = schedule_.check[i];
      if (compared_[i] > 0) continue;
      const Expression& at = check.when ? *check.when : check.equals;
      at.error(sink, fmt::format("this closed form of {} was compared nowhere on the grid{}", name(check.what),
                                 check.when ? ": its condition never holds" : ""));
    }
    add(sink, nullptr);
  }

  // The same sentence about other numbers is the same fault.
  static std::string sentence(const ir::Diagnostic& diagnostic) {
    std::string text = fmt::format("{}:{}:{} ", diagnostic.where.line, diagnostic.where.column, diagnostic.code);
    for (char c : diagnostic.message) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit) text += c;
    }
    return text;
  }

  // Errors of the sink; of one point only those that differ.
  void add(const ir::DiagnosticSink& sink, const LintPoint* point) {
    for (ir::Diagnostic diagnostic : sink.all()) {
      if (diagnostic.severity != ir::Severity::Error) continue;
      if (diagnostic.where.file.empty()) diagnostic.where = schedule_.location(schedule_.order_at);
      const std::string key = sentence(diagnostic);
      auto found = std::ranges::find(keys_, key);
      if (found == keys_.end()) {
        keys_.push_back(key);
        report_.faults.push_back({std::move(diagnostic), {}});
        found = keys_.end() - 1;
      }
      LintFault& fault = report_.faults[static_cast<std::size_t>(found - keys_.begin())];
      if (point && (fault.points.empty() || fault.points.back() != *point)) fault.points.push_back(*point);
    }
  }

  const Schedule& schedule_;
  LintReport report_;
  std::vector<int> reached_, held_;  // by condition: points where it was asked, where it held
  std::vector<int> compared_;        // by closed form
  std::vector<std::string> keys_;    // of report_.faults
};

}  // namespace

std::string lint_text(const LintPoint& point) { return fmt::format("p={} m={} v={}", point.p, point.m, point.v); }

std::optional<LintReport> lint_schedule(const Schedule& schedule, const LintGrid& grid, ir::DiagnosticSink& sink) {
  const auto points = read_grid(schedule, grid, sink);
  if (!points) return std::nullopt;
  return Linter(schedule).run(*points, grid.seconds);
}

}  // namespace fem::compiler
