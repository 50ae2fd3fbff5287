#include <limits>

#include <gtest/gtest.h>

#include "compiler/expression.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

const std::vector<std::string_view> kNames = {"p", "m", "r", "group"};
const std::vector<std::int64_t> kValues = {4, 10, 1, 5};

struct Outcome {
  std::optional<std::int64_t> value;
  std::string errors;
  int line = 0, column = 0;
  std::string message;
};

// The expression stands in line 3 of the file, from column 8.
Outcome evaluate(const std::string& text) {
  const SourcePtr file = source("\n\n       " + text + "\n");
  ir::DiagnosticSink sink;
  Outcome outcome;
  const auto expression = Expression::parse(ScalarText::plain(file, text, {3, 8}), kNames, sink);
  if (expression) outcome.value = expression->evaluate(kValues, sink);
  outcome.errors = sink.text();
  if (!sink.all().empty()) {
    outcome.line = sink.all()[0].where.line;
    outcome.column = sink.all()[0].where.column;
    outcome.message = sink.all()[0].message;
  }
  return outcome;
}

struct Value {
  const char* text;
  std::int64_t value;
};

class ExpressionValues : public testing::TestWithParam<Value> {};

TEST_P(ExpressionValues, AsInPython) {
  const Outcome outcome = evaluate(GetParam().text);
  EXPECT_EQ(outcome.errors, "");
  EXPECT_EQ(outcome.value, GetParam().value) << GetParam().text;
}

// Python's values of the same text, `if(c, a, b)` being `a if c else b`.
INSTANTIATE_TEST_SUITE_P(Expression, ExpressionValues,
                         testing::ValuesIn(std::vector<Value>{
                             {"7", 7},
                             {"p", 4},
                             {"p - 1 - r", 2},
                             {"p-1-r", 2},
                             {"2 + 3 * 4", 14},
                             {"(2 + 3) * 4", 20},
                             {"10 - 4 - 3", 3},
                             {"2 * 3 // 4", 1},
                             {"7 // 2", 3},
                             {"-7 // 2", -4},
                             {"7 // -2", -4},
                             {"-7 // -2", 3},
                             {"7 % 3", 1},
                             {"-7 % 3", 2},
                             {"7 % -3", -2},
                             {"-7 % -3", -1},
                             {"--3", 3},
                             {"-2 * -3", 6},
                             {"- 2 + 5", 3},
                             {"6 // 3 // 2", 1},
                             {"1 < 2", 1},
                             {"2 < 1", 0},
                             {"2 <= 2", 1},
                             {"2 >= 3", 0},
                             {"2 > 1", 1},
                             {"2 == 2", 1},
                             {"2 != 2", 0},
                             {"1 + 1 == 2", 1},
                             {"not 0", 1},
                             {"not 5", 0},
                             {"not 1 == 2", 1},
                             {"1 and 2", 1},
                             {"1 and 0", 0},
                             {"0 or 3", 1},
                             {"0 or 0", 0},
                             {"1 or 0 and 0", 1},
                             {"not 0 and 0", 0},
                             {"min(3, 2)", 2},
                             {"max(3, 2, 9, 4)", 9},
                             {"min(p, m, group)", 4},
                             {"if(r == 0, 10, 20)", 20},
                             {"if(p > 3, 10, 20)", 10},
                             {"min(2 * (p - 1 - r) + (2 - 1) * group, m * 2)", 9},
                             {"m % group == 0 or m % group >= p", 1},
                             // Only what is needed is evaluated.
                             {"if(1, 5, 1 // 0)", 5},
                             {"0 and 1 // 0", 0},
                             {"1 or 1 // 0", 1},
                             // The ends of the range.
                             {"9223372036854775807", std::numeric_limits<std::int64_t>::max()},
                             {"-9223372036854775807 - 1", std::numeric_limits<std::int64_t>::min()},
                             {"(-9223372036854775807 - 1) % -1", 0}}));

struct Error {
  const char* text;
  int column;  // within the expression, 1-based
  const char* message;
};

class ExpressionErrors : public testing::TestWithParam<Error> {};

TEST_P(ExpressionErrors, PointAtTheirCause) {
  const Outcome outcome = evaluate(GetParam().text);
  EXPECT_EQ(outcome.value, std::nullopt);
  EXPECT_EQ(outcome.line, 3);
  EXPECT_EQ(outcome.column, 7 + GetParam().column) << outcome.errors;
  EXPECT_EQ(outcome.message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Expression, ExpressionErrors,
    testing::ValuesIn(std::vector<Error>{
        {"p - gruop", 5, "unknown name 'gruop', did you mean 'group'?"},
        {"zzzz", 1, "unknown name 'zzzz'"},
        {"p -", 4, "the expression ends where a value must stand"},
        {"", 1, "the expression ends where a value must stand"},
        {"p / 2", 3, "'/' is not an operator: integers are divided with '//', which rounds down"},
        {"(p + 1", 7, "')' is missing"},
        {"p + 1)", 6, "unexpected ')' after the expression"},
        {"p q", 3, "unexpected 'q' after the expression"},
        {"0 < r < p", 7, "comparisons do not chain: write a < b and b < c"},
        {"p = 2", 3, "unexpected '=' after the expression"},
        {"* 2", 1, "'*' where a value must stand"},
        {"p + and", 5, "'and' where a value must stand"},
        {"mim(1, 2)", 1, "unknown function 'mim', did you mean 'min'?"},
        {"min(1)", 1, "min takes two values or more"},
        {"if(p, 1)", 1, "if takes a condition and two values, found 2"},
        {"max(1, 2", 9, "')' is missing"},
        {"12x", 1, "'12x' is not an integer"},
        {"9223372036854775808", 1, "9223372036854775808 does not fit into 64 bits"},
        {"1 + m // (r - 1)", 7, "division by zero: 10 // 0"},
        {"m % 0", 3, "division by zero: 10 % 0"},
        {"9223372036854775807 + r", 21, "the result does not fit into 64 bits (operands 9223372036854775807 and 1)"},
        {"m * 4611686018427387904", 3, "the result does not fit into 64 bits (operands 10 and 4611686018427387904)"},
        {"(-9223372036854775807 - 1) // -1", 28,
         "the result does not fit into 64 bits (operands -9223372036854775808 and -1)"}}));

TEST(Expression, DeepNestingIsRefusedNotOverrun) {
  for (const char* piece : {"(", "-", "not ", "min(1,"}) {
    std::string text;
    while (text.size() < 3000) text += piece;
    EXPECT_EQ(evaluate(text).message, "nested deeper than 100 levels") << piece;
  }
  std::string chain = "1";
  while (chain.size() < 3990) chain += "+1";
  EXPECT_EQ(evaluate(chain).value, static_cast<std::int64_t>(chain.size() / 2 + 1));
  EXPECT_EQ(evaluate(std::string(5000, ' ') + "1").message, "longer than 4000 characters");
}

TEST(Expression, CaretStandsUnderTheName) {
  EXPECT_EQ(evaluate("p - gruop").errors,
            "test.yaml:3:12: error: unknown name 'gruop', did you mean 'group'?\n"
            "         p - gruop\n"
            "             ^\n");
}

}  // namespace
}  // namespace fem::compiler::test
