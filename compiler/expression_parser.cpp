#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "compiler/expression.hpp"

namespace fem::compiler {
namespace {

constexpr std::array<std::string_view, 6> kWords = {"min", "max", "if", "and", "or", "not"};
constexpr std::array<std::string_view, 3> kFunctions = {"min", "max", "if"};
constexpr int kMaxDepth = 100;
constexpr std::size_t kMaxLength = 4000;  // bounds the depth of left-leaning chains as well

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::span<const std::string_view> expression_words() { return kWords; }

// Recursive descent over the text; one function per level of the grammar. A function that fails has reported and
// returns kFailed, and its callers pass that on.
class ExpressionParser {
 public:
  using Kind = Expression::Kind;

  ExpressionParser(const ScalarText& text, std::span<const std::string_view> names, ir::DiagnosticSink& sink)
      : text_(text), source_(text.text()), names_(names), sink_(sink) {}

  std::optional<Expression> parse() {
    if (source_.size() > kMaxLength) {
      fail(0, fmt::format("longer than {} characters", kMaxLength));
      return std::nullopt;
    }
    advance();
    const std::int32_t root = parse_or();
    if (root == kFailed) return std::nullopt;
    if (!token_.text.empty()) {
      fail(token_.offset, comparison(token_.text) ? "comparisons do not chain: write a < b and b < c"
                                                  : fmt::format("unexpected '{}' after the expression", token_.text));
      return std::nullopt;
    }
    Expression result;
    result.text_ = text_;
    result.nodes_ = std::move(nodes_);
    result.root_ = root;
    return result;
  }

 private:
  static constexpr std::int32_t kFailed = -1;
  struct Token {
    std::string_view text;  // empty at the end
    std::size_t offset = 0;
  };

  std::int32_t fail(std::size_t offset, std::string message) {
    text_.error(sink_, offset, std::move(message));
    return kFailed;
  }
  std::int32_t add(Kind kind, std::size_t offset, std::int32_t a = 0, std::int32_t b = 0, std::int32_t c = 0) {
    nodes_.push_back({kind, 0, {a, b, c}, static_cast<std::uint32_t>(offset)});
    return static_cast<std::int32_t>(nodes_.size()) - 1;
  }

  void advance() {
    while (end_ < source_.size() && (source_[end_] == ' ' || source_[end_] == '\n' || source_[end_] == '\t')) ++end_;
    const std::size_t start = end_;
    if (start == source_.size()) {
      token_ = {{}, start};
      return;
    }
    const char c = source_[start];
    if (letter(c) || digit(c)) {
      while (end_ < source_.size() && (letter(source_[end_]) || digit(source_[end_]))) ++end_;
    } else {
      const std::string_view two = source_.substr(start, 2);
      const bool pair = two == "//" || two == "==" || two == "!=" || two == "<=" || two == ">=";
      end_ += pair ? 2 : 1;
    }
    token_ = {source_.substr(start, end_ - start), start};
  }
  bool accept(std::string_view text) {
    if (token_.text != text) return false;
    advance();
    return true;
  }

  static std::optional<Kind> comparison(std::string_view text) {
    if (text == "==") return Kind::Equal;
    if (text == "!=") return Kind::NotEqual;
    if (text == "<") return Kind::Less;
    if (text == "<=") return Kind::LessEqual;
    if (text == ">") return Kind::Greater;
    if (text == ">=") return Kind::GreaterEqual;
    return std::nullopt;
  }
  static std::optional<Kind> additive(std::string_view text) {
    if (text == "+") return Kind::Add;
    if (text == "-") return Kind::Subtract;
    return std::nullopt;
  }
  static std::optional<Kind> multiplicative(std::string_view text) {
    if (text == "*") return Kind::Multiply;
    if (text == "//") return Kind::Divide;
    if (text == "%") return Kind::Modulo;
    return std::nullopt;
  }
  static std::optional<Kind> conjunction(std::string_view text) {
    return text == "and" ? std::optional(Kind::And) : std::nullopt;
  }
  static std::optional<Kind> disjunction(std::string_view text) {
    return text == "or" ? std::optional(Kind::Or) : std::nullopt;
  }

  // operand (operator operand)*, from the left.
  std::int32_t left_chain(std::optional<Kind> (*operation)(std::string_view),
                          std::int32_t (ExpressionParser::*operand)()) {
    std::int32_t left = (this->*operand)();
    while (left != kFailed) {
      const auto kind = operation(token_.text);
      if (!kind) break;
      const std::size_t offset = token_.offset;
      advance();
      const std::int32_t right = (this->*operand)();
      if (right == kFailed) return kFailed;
      left = add(*kind, offset, left, right);
    }
    return left;
  }

  // Every recursion of the grammar passes through here or through parse_unary.
  template <class Parse>
  std::int32_t nested(Parse parse) {
    if (depth_ == kMaxDepth) return fail(token_.offset, fmt::format("nested deeper than {} levels", kMaxDepth));
    ++depth_;
    const std::int32_t result = parse();
    --depth_;
    return result;
  }

  std::int32_t parse_or() {
    return nested([&] { return left_chain(disjunction, &ExpressionParser::parse_and); });
  }
  std::int32_t parse_and() { return left_chain(conjunction, &ExpressionParser::parse_not); }
  std::int32_t parse_not() {
    const std::size_t offset = token_.offset;
    if (!accept("not")) return parse_compare();
    const std::int32_t operand = nested([&] { return parse_not(); });
    return operand == kFailed ? kFailed : add(Kind::Not, offset, operand);
  }
  std::int32_t parse_compare() {
    const std::int32_t left = parse_sum();
    const auto kind = comparison(token_.text);
    if (left == kFailed || !kind) return left;
    const std::size_t offset = token_.offset;
    advance();
    const std::int32_t right = parse_sum();
    return right == kFailed ? kFailed : add(*kind, offset, left, right);
  }
  std::int32_t parse_sum() { return left_chain(additive, &ExpressionParser::parse_term); }
  std::int32_t parse_term() {
    const std::int32_t result = left_chain(multiplicative, &ExpressionParser::parse_unary);
    if (result != kFailed && token_.text == "/") {
      return fail(token_.offset, "'/' is not an operator: integers are divided with '//', which rounds down");
    }
    return result;
  }
  std::int32_t parse_unary() {
    const std::size_t offset = token_.offset;
    if (!accept("-")) return parse_primary();
    const std::int32_t operand = nested([&] { return parse_unary(); });
    return operand == kFailed ? kFailed : add(Kind::Negate, offset, operand);
  }

  std::int32_t parse_primary() {
    const Token token = token_;
    if (token.text.empty()) return fail(token.offset, "the expression ends where a value must stand");
    if (digit(token.text[0])) return parse_number();
    if (accept("(")) {
      const std::int32_t inner = parse_or();
      if (inner == kFailed) return kFailed;
      return accept(")") ? inner : fail(token_.offset, "')' is missing");
    }
    if (!letter(token.text[0])) return fail(token.offset, fmt::format("'{}' where a value must stand", token.text));
    advance();
    return token_.text == "(" ? parse_call(token) : parse_name(token);
  }

  std::int32_t parse_number() {
    const Token token = token_;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (error == std::errc::result_out_of_range) {
      return fail(token.offset, fmt::format("{} does not fit into 64 bits", token.text));
    }
    if (end != token.text.data() + token.text.size()) {
      return fail(token.offset, fmt::format("'{}' is not an integer", token.text));
    }
    advance();
    const std::int32_t node = add(Kind::Constant, token.offset);
    nodes_[static_cast<std::size_t>(node)].value = value;
    return node;
  }

  std::int32_t parse_name(const Token& token) {
    const auto found = std::ranges::find(names_, token.text);
    if (found == names_.end()) {
      if (std::ranges::find(kWords, token.text) != kWords.end()) {
        return fail(token.offset, fmt::format("'{}' where a value must stand", token.text));
      }
      return fail(token.offset, fmt::format("unknown name '{}'{}", token.text, ir::did_you_mean(token.text, names_)));
    }
    const std::int32_t node = add(Kind::Variable, token.offset);
    nodes_[static_cast<std::size_t>(node)].value = found - names_.begin();
    return node;
  }

  std::int32_t parse_call(const Token& token) {
    if (std::ranges::find(kFunctions, token.text) == kFunctions.end()) {
      return fail(token.offset,
                  fmt::format("unknown function '{}'{}", token.text, ir::did_you_mean(token.text, kFunctions)));
    }
    std::vector<std::int32_t> arguments;
    advance();
    do {
      arguments.push_back(parse_or());
      if (arguments.back() == kFailed) return kFailed;
    } while (accept(","));
    if (token_.text != ")") return fail(token_.offset, "')' is missing");
    advance();
    if (token.text == "if") {
      if (arguments.size() == 3) return add(Kind::If, token.offset, arguments[0], arguments[1], arguments[2]);
      return fail(token.offset, fmt::format("if takes a condition and two values, found {}", arguments.size()));
    }
    if (arguments.size() < 2) return fail(token.offset, fmt::format("{} takes two values or more", token.text));
    std::int32_t result = arguments[0];
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      result = add(token.text == "min" ? Kind::Min : Kind::Max, token.offset, result, arguments[i]);
    }
    return result;
  }

  const ScalarText& text_;
  std::string_view source_;
  std::span<const std::string_view> names_;
  ir::DiagnosticSink& sink_;
  std::vector<Expression::Node> nodes_;
  Token token_;
  std::size_t end_ = 0;
  int depth_ = 0;
};

std::optional<Expression> Expression::parse(const ScalarText& text, std::span<const std::string_view> names,
                                            ir::DiagnosticSink& sink) {
  return ExpressionParser(text, names, sink).parse();
}

}  // namespace fem::compiler
