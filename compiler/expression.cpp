#include "compiler/expression.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace fem::compiler {
namespace {

using Value = std::int64_t;
constexpr Value kLowest = std::numeric_limits<Value>::min();

}  // namespace

std::optional<Value> Expression::evaluate(std::span<const Value> values, ir::DiagnosticSink& sink) const {
  return evaluate(nodes_[static_cast<std::size_t>(root_)], values, sink);
}

std::optional<Value> Expression::evaluate(const Node& node, std::span<const Value> values,
                                          ir::DiagnosticSink& sink) const {
  const auto operand = [&](int i) { return evaluate(nodes_[static_cast<std::size_t>(node.operand[i])], values, sink); };
  switch (node.kind) {
    case Kind::Constant:
      return node.value;
    case Kind::Variable:
      return values[static_cast<std::size_t>(node.value)];
    case Kind::If: {
      const auto condition = operand(0);
      if (!condition) return std::nullopt;
      return operand(*condition ? 1 : 2);
    }
    case Kind::Negate: {
      const auto a = operand(0);
      return a ? arithmetic(node, 0, *a, sink) : std::nullopt;
    }
    case Kind::Not: {
      const auto a = operand(0);
      return a ? std::optional<Value>(!*a) : std::nullopt;
    }
    case Kind::And:
    case Kind::Or: {
      const auto a = operand(0);
      if (!a) return std::nullopt;
      if ((*a != 0) == (node.kind == Kind::Or)) return Value{*a != 0};
      const auto b = operand(1);
      return b ? std::optional<Value>(*b != 0) : std::nullopt;
    }
    case Kind::Add:
    case Kind::Subtract:
    case Kind::Multiply:
    case Kind::Divide:
    case Kind::Modulo:
    case Kind::Equal:
    case Kind::NotEqual:
    case Kind::Less:
    case Kind::LessEqual:
    case Kind::Greater:
    case Kind::GreaterEqual:
    case Kind::Min:
    case Kind::Max: {
      const auto a = operand(0);
      const auto b = a ? operand(1) : std::nullopt;
      return b ? arithmetic(node, *a, *b, sink) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<Value> Expression::arithmetic(const Node& node, Value a, Value b, ir::DiagnosticSink& sink) const {
  Value result = 0;
  bool overflow = false;
  switch (node.kind) {
    case Kind::Add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Kind::Negate:
    case Kind::Subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Kind::Multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Kind::Divide:
    case Kind::Modulo: {
      if (b == 0) {
        text_.error(sink, node.offset,
                    fmt::format("division by zero: {} {} 0", a, node.kind == Kind::Divide ? "//" : "%"));
        return std::nullopt;
      }
      if (a == kLowest && b == -1) {
        overflow = node.kind == Kind::Divide;
        break;
      }
      const Value remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      result = node.kind == Kind::Divide ? a / b - adjust : remainder + (adjust ? b : 0);
      break;
    }
    case Kind::Equal:
      result = a == b;
      break;
    case Kind::NotEqual:
      result = a != b;
      break;
    case Kind::Less:
      result = a < b;
      break;
    case Kind::LessEqual:
      result = a <= b;
      break;
    case Kind::Greater:
      result = a > b;
      break;
    case Kind::GreaterEqual:
      result = a >= b;
      break;
    case Kind::Min:
      result = std::min(a, b);
      break;
    case Kind::Max:
      result = std::max(a, b);
      break;
    case Kind::Constant:
    case Kind::Variable:
    case Kind::Not:
    case Kind::And:
    case Kind::Or:
    case Kind::If:
      break;
  }
  if (!overflow) return result;
  text_.error(sink, node.offset, fmt::format("the result does not fit into 64 bits (operands {} and {})", a, b));
  return std::nullopt;
}

}  // namespace fem::compiler
