#include "compiler/phases.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "compiler/order_kinds.hpp"

namespace fem::compiler {
namespace {

using Names = std::vector<std::string_view>;

constexpr std::array<std::string_view, 2> kDirections = {"ascending", "descending"};

bool blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

// Reads one entry of `do`: OP, OP&OP, each with a chunk or without (F, F1, F(expression)), then `if EXPRESSION`.
class ItemParser {
 public:
  ItemParser(const ScalarText& text, const Names& names, bool split, ir::DiagnosticSink& sink)
      : text_(text), names_(names), split_(split), sink_(sink) {}

  std::optional<PhaseItem> parse() {
    PhaseItem item;
    do {
      auto op = parse_op();
      if (!op) return std::nullopt;
      item.ops.push_back(std::move(*op));
      skip_blanks();
    } while (accept('&'));
    if (item.ops.size() > 1 && !is_pair(item)) {
      text_.error(sink_, 0, "'&' joins one forward and one whole backward, the forward first: F&B");
      return std::nullopt;
    }
    if (at_ == source().size()) return item;
    if (source().substr(at_, 2) != "if" ||
        (at_ + 2 < source().size() && !blank(source()[at_ + 2]) && source()[at_ + 2] != '(')) {
      text_.error(sink_, at_,
                  fmt::format("'{}' after an operation; valid: '&' and another operation, or 'if' and a condition",
                              source().substr(at_)));
      return std::nullopt;
    }
    item.guard = Expression::parse(text_.part(at_ + 2, std::string::npos), names_, sink_);
    if (!item.guard) return std::nullopt;
    return item;
  }

 private:
  std::string_view source() const { return text_.text(); }
  void skip_blanks() {
    while (at_ < source().size() && blank(source()[at_])) ++at_;
  }
  bool accept(char c) {
    if (at_ == source().size() || source()[at_] != c) return false;
    ++at_;
    return true;
  }
  static bool is_pair(const PhaseItem& item) {
    return item.ops.size() == 2 && item.ops[0].kind == OpKind::F && item.ops[1].kind == OpKind::B;
  }

  std::optional<PhaseOp> parse_op() {
    skip_blanks();
    const std::size_t start = at_;
    const auto kind = start < source().size() ? op_kind(source()[start]) : std::nullopt;
    if (!kind) {
      text_.error(sink_, start,
                  fmt::format("{} is no operation; valid: F, B (whole backward), I (input gradient), "
                              "W (weight gradient)",
                              start < source().size() ? fmt::format("'{}'", source()[start]) : "nothing"));
      return std::nullopt;
    }
    if (!split_ && (*kind == OpKind::I || *kind == OpKind::W)) {
      text_.error(sink_, start,
                  fmt::format("{} is a part of a split backward, and this file says 'backward: whole'", letter(*kind)));
      return std::nullopt;
    }
    ++at_;
    PhaseOp op;
    op.kind = *kind;
    if (!parse_slot(op)) return std::nullopt;
    op.text = text_.part(start, at_ - start);
    return op;
  }

  bool parse_slot(PhaseOp& op) {
    std::size_t begin = at_, end = at_;
    if (accept('(')) {
      begin = at_;
      for (int depth = 1; depth > 0; ++at_) {
        if (at_ == source().size()) {
          text_.error(sink_, begin - 1, "this '(' is not closed");
          return false;
        }
        if (source()[at_] == '(') ++depth;
        if (source()[at_] == ')') --depth;
      }
      end = at_ - 1;
    } else {
      while (at_ < source().size() && digit(source()[at_])) ++at_;
      if ((end = at_) == begin) return true;
    }
    op.slot = Expression::parse(text_.part(begin, end - begin), names_, sink_);
    return op.slot.has_value();
  }

  const ScalarText& text_;
  const Names& names_;
  bool split_;
  ir::DiagnosticSink& sink_;
  std::size_t at_ = 0;
};

std::optional<Phase> parse_phase(const OrderSource& source, const YAML::Node& node, const Names& names,
                                 ir::DiagnosticSink& sink) {
  constexpr std::array<std::string_view, 2> kKeys = {"repeat", "do"};
  const YamlMap map = read_map(source.file, node, "a phase", kKeys, sink);
  bool ok = map.ok;
  Phase phase;
  if (const YAML::Node* repeat = map.find("repeat")) {
    const auto text = read_scalar(source.file, *repeat, "repeat", sink);
    if (text) phase.repeat = Expression::parse(*text, names, sink);
    ok = ok && phase.repeat;
  }
  const YAML::Node* items = map.find("do");
  if (!items) {
    if (map.ok) source.file.error(sink, node, "a phase needs 'do': a list of operations");
    return std::nullopt;
  }
  if (!is_list(source.file, *items, "do", sink)) return std::nullopt;
  for (const YAML::Node& entry : *items) {
    const auto text = read_scalar(source.file, entry, "an operation", sink);
    auto item = text ? ItemParser(*text, names, source.schedule.split, sink).parse() : std::nullopt;
    ok = ok && item;
    if (item) phase.items.push_back(std::move(*item));
  }
  return ok ? std::optional(std::move(phase)) : std::nullopt;
}

std::optional<Walk> parse_walk(const OrderSource& source, const YAML::Node& node, std::string_view what,
                               const Names& names, ir::DiagnosticSink& sink) {
  constexpr std::array<std::string_view, 3> kKeys = {"group", "chunks", "microbatches"};
  const YamlMap map = read_map(source.file, node, what, kKeys, sink);
  bool ok = map.ok;
  Walk walk;
  const auto direction = [&](std::string_view key, bool& descending) {
    if (const YAML::Node* value = map.find(key)) {
      const auto choice = read_choice(source.file, *value, key, kDirections, sink);
      ok = ok && choice;
      descending = choice == 1;
    }
  };
  direction("chunks", walk.chunks_descending);
  direction("microbatches", walk.microbatches_descending);
  if (const YAML::Node* group = map.find("group")) {
    const auto text = read_scalar(source.file, *group, "group", sink);
    if (text) walk.group = Expression::parse(*text, names, sink);
    ok = ok && walk.group;
  }
  return ok ? std::optional(std::move(walk)) : std::nullopt;
}

bool parse_walks(const OrderSource& source, Phases& phases, const Names& names, ir::DiagnosticSink& sink) {
  if (!source.walk) return true;
  constexpr std::array<std::string_view, Phases::kWalks> kKeys = {"forward", "backward"};
  const YamlMap map = read_map(source.file, *source.walk, "walk", kKeys, sink);
  bool ok = map.ok;
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    const YAML::Node* node = map.find(kKeys[i]);
    if (!node) continue;
    auto walk = parse_walk(source, *node, fmt::format("walk {}", kKeys[i]), names, sink);
    ok = ok && walk;
    if (walk) phases.walks[i] = std::move(*walk);
  }
  return ok;
}

// Operations of one sort either all name their chunk or none does; with two directions all do.
bool check_slots(const OrderSource& source, const Phases& phases, ir::DiagnosticSink& sink) {
  std::array<const PhaseOp*, 3> first{};
  for (const Phase& phase : phases.phases) {
    for (const PhaseItem& item : phase.items) {
      for (const PhaseOp& op : item.ops) {
        const std::size_t sort = op.kind == OpKind::F ? 0 : op.kind == OpKind::W ? 2 : 1;
        if (!first[sort]) first[sort] = &op;
        if (op.slot.has_value() != first[sort]->slot.has_value()) {
          op.text.error(sink, 0,
                        fmt::format("{} after {}: all operations of a kind name their chunk, or none does",
                                    op.text.text(), first[sort]->text.text()));
          return false;
        }
        if (source.schedule.placement == PlacementKind::Bidirectional && !op.slot && op.kind != OpKind::W) {
          op.text.error(sink, 0,
                        fmt::format("{0} without a direction: with placement bidirectional, write {0}0 or {0}1",
                                    letter(op.kind)));
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

std::optional<Phases> parse_phases(const OrderSource& source, ir::DiagnosticSink& sink) {
  if (!is_list(source.file, source.node, "phases", sink)) return std::nullopt;
  const ScheduleNames& all = source.schedule.names;
  Phases phases;
  phases.text = ScalarText::plain(source.file.source(), {}, source.file.position(source.node));
  bool ok = parse_walks(source, phases, all.until(all.lets_end), sink);
  const Names names = all.until(all.all.size());
  for (const YAML::Node& node : source.node) {
    auto phase = parse_phase(source, node, names, sink);
    ok = ok && phase;
    if (phase) phases.phases.push_back(std::move(*phase));
  }
  if (!ok || !check_slots(source, phases, sink)) return std::nullopt;
  return phases;
}

}  // namespace fem::compiler
