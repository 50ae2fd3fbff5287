// One schedule file alone: does it give a proved plan wherever its own conditions allow one, and say what is true?
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/schedule.hpp"

namespace fem::compiler {

// Sizes to try, as text: numbers and ranges a..b for p and v, expressions of p and v for m.
struct LintGrid {
  std::string p = "1..8,16";
  std::string m = "1,p,2*p,2*p+1,3*p,24";
  std::string v;        // empty: from the least number of chunks that the file takes, at most kLintChunks of them
  double seconds = 60;  // no new point after so long
};
inline constexpr int kLintChunks = 3;

struct LintPoint {
  int p = 1;
  std::int64_t m = 1;
  int v = 1;
  friend bool operator==(const LintPoint&, const LintPoint&) = default;
};
std::string lint_text(const LintPoint& point);  // "p=4 m=8 v=1"

// A message, and where on the grid it came up; nowhere: it is about the file.
struct LintFault {
  ir::Diagnostic diagnostic;
  std::vector<LintPoint> points;
};

struct LintReport {
  struct Row {
    int p = 1;
    int planned = 0, refused = 0, failed = 0, comparisons = 0;
  };
  struct Refusal {
    int points = 0;
    LintPoint first;
    std::string message;  // at the first point
  };
  std::vector<Row> rows;             // by p, in the grid's order
  std::vector<Refusal> refusals;     // by condition of the file
  std::vector<LintPoint> not_tried;  // time was up
  std::vector<LintFault> faults;     // in the order in which they were found
};

// For every point of the grid: the file's own conditions, its order, the plan of a small model through the default
// pipeline (verified after each pass), and the closed forms under three sets of costs. Then what the file says and no
// point needed: a condition that never holds, a closed form whose `when` never holds, a name that nothing uses, an
// empty reference. Empty where the grid itself cannot be read: the errors are in `sink`.
std::optional<LintReport> lint_schedule(const Schedule& schedule, const LintGrid& grid, ir::DiagnosticSink& sink);

// Parameters and names of `let` that no expression of the file uses, and a reference without text: errors at their
// place.
void check_schedule_text(const Schedule& schedule, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
