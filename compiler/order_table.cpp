// The order `table`: every operation of every rank, written out.
#include <charconv>

#include <fmt/format.h>

#include "compiler/order_kinds.hpp"

namespace fem::compiler {
namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

// One row: operations separated by blanks, an overlapped pair as (0F2;0B0).
class RowParser {
 public:
  RowParser(const ScalarText& text, bool split, ir::DiagnosticSink& sink) : text_(text), split_(split), sink_(sink) {}

  std::optional<RankOrder> parse() {
    RankOrder order;
    for (skip_blanks(); at_ < source().size(); skip_blanks()) {
      const bool pair = accept('(');
      if (!parse_op(order)) return std::nullopt;
      if (!pair) continue;
      order.back().joined = true;
      if (!accept(';')) return fail(at_, "a pair reads (0F2;0B0): ';' is missing");
      if (!parse_op(order)) return std::nullopt;
      if (!accept(')')) return fail(at_, "a pair reads (0F2;0B0): ')' is missing");
    }
    return order;
  }

 private:
  std::string_view source() const { return text_.text(); }
  void skip_blanks() {
    while (at_ < source().size() && blank(source()[at_])) ++at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ == source().size() || source()[at_] != c) return false;
    ++at_;
    return true;
  }
  std::nullopt_t fail(std::size_t offset, std::string message) {
    text_.error(sink_, offset, std::move(message));
    return std::nullopt;
  }

  template <class Int>
  bool number(Int& value) {
    const char* begin = source().data() + at_;
    const auto [end, error] = std::from_chars(begin, source().data() + source().size(), value);
    if (error != std::errc() || value < 0) return false;
    at_ += static_cast<std::size_t>(end - begin);
    return true;
  }

  bool parse_op(RankOrder& order) {
    skip_blanks();
    const std::size_t start = at_;
    Op op;
    bool ok = number(op.stage);
    const auto kind = ok && at_ < source().size() ? op_kind(source()[at_]) : std::nullopt;
    if (kind) op.kind = *kind, ++at_;
    ok = kind && number(op.microbatch);
    ok = ok && (at_ == source().size() || blank(source()[at_]) || source()[at_] == ';' || source()[at_] == ')');
    if (!ok) {
      std::size_t end = start;
      while (end < source().size() && !blank(source()[end])) ++end;
      fail(start, fmt::format("'{}' is no operation: write stage, one of F B I W, microbatch, as in 0F2",
                              source().substr(start, end - start)));
      return false;
    }
    if (!split_ && (op.kind == OpKind::I || op.kind == OpKind::W)) {
      fail(start,
           fmt::format("{} is a part of a split backward, and this file says 'backward: whole'", letter(op.kind)));
      return false;
    }
    order.push_back(op);
    return true;
  }

  const ScalarText& text_;
  bool split_;
  ir::DiagnosticSink& sink_;
  std::size_t at_ = 0;
};

class TableGenerator final : public OrderGenerator {
 public:
  TableGenerator(Order order, ScalarText text) : order_(std::move(order)), text_(std::move(text)) {
    for (const RankOrder& rank : order_) {
      for (const Op& op : rank) microbatches_ = std::max(microbatches_, std::int64_t{op.microbatch} + 1);
    }
  }

  std::optional<Order> generate(const ScheduleCase& sizes, const Placement&, std::span<const std::vector<std::int64_t>>,
                                ir::DiagnosticSink& sink) const override {
    if (order_.size() == static_cast<std::size_t>(sizes.p) && microbatches_ == sizes.m) return order_;
    text_.error(sink, 0,
                fmt::format("the table is written for {} ranks and {} microbatches, not for p={}, m={}", order_.size(),
                            microbatches_, sizes.p, sizes.m));
    return std::nullopt;
  }

 private:
  Order order_;
  ScalarText text_;
  std::int64_t microbatches_ = 0;
};

}  // namespace

std::shared_ptr<const OrderGenerator> read_table(const OrderSource& source, ir::DiagnosticSink& sink) {
  if (!is_list(source.file, source.node, "table", sink)) return nullptr;
  Order order;
  bool ok = true;
  for (const YAML::Node& node : source.node) {
    const auto text = read_scalar(source.file, node, "a rank of the table", sink);
    auto rank = text ? RowParser(*text, source.schedule.split, sink).parse() : std::nullopt;
    ok = ok && rank;
    if (rank) order.push_back(std::move(*rank));
  }
  if (!ok) return nullptr;
  const Position at = source.file.position(source.node);
  return std::make_shared<TableGenerator>(std::move(order), ScalarText::plain(source.file.source(), {}, at));
}

}  // namespace fem::compiler
