// Integer expressions of schedule files: p - 1 - r, min(2 * p, m) // v, if(r == 0, 1, 2), r > 0 and m % p == 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/scalar_text.hpp"

namespace fem::compiler {

// Grammar, loosest first; comparisons do not chain:
//   or: and ("or" and)*            and: not ("and" not)*             not: "not" not | compare
//   compare: sum [(== | != | < | <= | > | >=) sum]
//   sum: term (("+" | "-") term)*  term: unary (("*" | "//" | "%") unary)*
//   unary: "-" unary | primary     primary: integer | name | function "(" or ("," or)* ")" | "(" or ")"
// Functions: min and max of two or more, if(condition, then, else). Values are 64-bit integers; a condition holds where
// it is not 0; and, or, not and comparisons give 0 or 1. // rounds down and % has the sign of its divisor, as in
// Python. and, or and if evaluate only what they need.
class Expression {
 public:
  // `names` are the variables in scope; evaluate() takes their values in the same order. Empty after a diagnosed error.
  static std::optional<Expression> parse(const ScalarText& text, std::span<const std::string_view> names,
                                         ir::DiagnosticSink& sink);

  // Empty after a division by zero or an overflow, which point at the operator.
  std::optional<std::int64_t> evaluate(std::span<const std::int64_t> values, ir::DiagnosticSink& sink) const;

  const std::string& text() const { return text_.text(); }
  ir::SourceLocation where() const {
    const Position at = text_.at(0);
    return {text_.source()->file(), at.line, at.column};
  }
  // Reports at the start of the expression.
  void error(ir::DiagnosticSink& sink, std::string message) const { text_.error(sink, 0, std::move(message)); }

 private:
  friend class ExpressionParser;
  enum class Kind : std::uint8_t {
    Constant,
    Variable,
    Negate,
    Not,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Min,
    Max,
    If,
  };
  struct Node {
    Kind kind;
    std::int64_t value = 0;        // of a constant; index of a variable
    std::int32_t operand[3] = {};  // indices of nodes
    std::uint32_t offset = 0;      // of the operator in the text
  };

  std::optional<std::int64_t> evaluate(const Node& node, std::span<const std::int64_t> values,
                                       ir::DiagnosticSink& sink) const;
  std::optional<std::int64_t> arithmetic(const Node& node, std::int64_t a, std::int64_t b,
                                         ir::DiagnosticSink& sink) const;

  ScalarText text_;
  std::vector<Node> nodes_;
  std::int32_t root_ = 0;
};

// Words that cannot name a parameter: functions and operators.
std::span<const std::string_view> expression_words();

}  // namespace fem::compiler
