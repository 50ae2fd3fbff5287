// The order `priority`: list scheduling by priorities, with caps on how far forwards may be ahead.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "compiler/list_scheduler.hpp"
#include "compiler/order_kinds.hpp"

namespace fem::compiler {
namespace {

struct CapExpression {
  OpKind behind = OpKind::B;
  Expression most;
};

class PriorityGenerator final : public OrderGenerator {
 public:
  PriorityGenerator(std::vector<PriorityEntry> entries, std::vector<CapExpression> caps,
                    std::array<std::optional<Expression>, 3> costs, ScalarText text)
      : entries_(std::move(entries)), caps_(std::move(caps)), costs_(std::move(costs)), text_(std::move(text)) {}

  std::optional<Order> generate(const ScheduleCase& sizes, const Placement& placement,
                                std::span<const std::vector<std::int64_t>> lets,
                                ir::DiagnosticSink& sink) const override {
    PriorityRule rule;
    rule.entries = entries_;
    for (const CapExpression& cap : caps_) {
      PriorityCap& values = rule.caps.emplace_back();
      values.behind = cap.behind;
      for (const auto& scope : lets) {
        const auto most = cap.most.evaluate(scope, sink);
        if (!most) return std::nullopt;
        values.most.push_back(*most);
      }
    }
    const std::array<std::int64_t*, 3> times = {&rule.forward, &rule.input, &rule.weight};
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (!costs_[i]) continue;
      const auto time = costs_[i]->evaluate(lets.front(), sink);
      if (!time) return std::nullopt;
      if (*time < 1) {
        costs_[i]->error(sink, fmt::format("a cost of {}, less than 1", *time));
        return std::nullopt;
      }
      *times[i] = *time;
    }
    int blocked = 0;
    auto order = list_schedule(rule, placement, sizes.m, blocked);
    if (!order) {
      text_.error(
          sink, 0,
          fmt::format("the caps leave rank {} nothing to run (p={}, m={}, v={})", blocked, sizes.p, sizes.m, sizes.v));
    }
    return order;
  }

 private:
  std::vector<PriorityEntry> entries_;
  std::vector<CapExpression> caps_;
  std::array<std::optional<Expression>, 3> costs_;
  ScalarText text_;
};

class PriorityReader {
 public:
  PriorityReader(const OrderSource& source, ir::DiagnosticSink& sink) : source_(source), sink_(sink) {}

  std::shared_ptr<const OrderGenerator> read() {
    const int errors = sink_.errors();
    constexpr std::array<std::string_view, 3> kKeys = {"first", "ahead", "costs"};
    const YamlMap map = read_map(source_.file, source_.node, "priority", kKeys, sink_);
    const YAML::Node* first = map.find("first");
    if (!first && map.ok) error(source_.node, "a priority order needs 'first', its operations from first to last");
    if (first) read_entries(*first);
    if (const YAML::Node* ahead = map.find("ahead")) read_caps(*ahead);
    if (const YAML::Node* costs = map.find("costs")) read_costs(*costs);
    if (sink_.errors() > errors) return nullptr;
    const Position at = source_.file.position(source_.node);
    return std::make_shared<PriorityGenerator>(std::move(entries_), std::move(caps_), std::move(costs_),
                                               ScalarText::plain(source_.file.source(), {}, at));
  }

 private:
  void error(const YAML::Node& node, std::string message) { source_.file.error(sink_, node, std::move(message)); }

  int schedule_slots() const {
    return source_.schedule.placement == PlacementKind::Bidirectional ? 2 : source_.schedule.chunks.high;
  }

  bool fits_backward(OpKind kind) const {
    const bool part = kind == OpKind::I || kind == OpKind::W;
    return kind == OpKind::F || part == source_.schedule.split;
  }

  std::optional<Expression> read_expression(const YAML::Node& node, std::string_view what) {
    const auto text = read_scalar(source_.file, node, what, sink_);
    const Schedule& schedule = source_.schedule;
    return text ? Expression::parse(*text, schedule.names.until(schedule.names.lets_end), sink_) : std::nullopt;
  }

  void read_entries(const YAML::Node& list) {
    if (!is_list(source_.file, list, "first", sink_)) return;
    for (const YAML::Node& node : list) {
      const auto text = read_scalar(source_.file, node, "an operation", sink_);
      if (!text) continue;
      const std::string& word = text->text();
      const auto kind = word.empty() ? std::nullopt : op_kind(word[0]);
      const int slots = schedule_slots();
      const bool digit = word.size() == 2 && word[1] >= '0' && word[1] < '0' + std::min(slots, 10);
      if (!kind || !fits_backward(*kind) || (word.size() != 1 && !digit)) {
        error(node, fmt::format("'{}' is no operation of this order: write {}, each with a chunk (0 to {}) or without",
                                word, source_.schedule.split ? "F, I or W" : "F or B", slots - 1));
        continue;
      }
      entries_.push_back({*kind, digit ? std::optional(word[1] - '0') : std::nullopt});
    }
  }

  void read_caps(const YAML::Node& node) {
    constexpr std::array<std::string_view, 2> kSplit = {"I", "W"};
    constexpr std::array<std::string_view, 1> kWhole = {"B"};
    const bool split = source_.schedule.split;
    const auto keys = split ? std::span<const std::string_view>(kSplit) : std::span<const std::string_view>(kWhole);
    for (const YamlEntry& entry : read_map(source_.file, node, "ahead", keys, sink_).entries) {
      auto most = read_expression(entry.value, entry.key);
      if (most) caps_.push_back({*op_kind(entry.key[0]), std::move(*most)});
    }
  }

  void read_costs(const YAML::Node& node) {
    constexpr std::array<std::string_view, 3> kKeys = {"F", "I", "W"};
    const YamlMap map = read_map(source_.file, node, "costs", kKeys, sink_);
    for (std::size_t i = 0; i < kKeys.size(); ++i) {
      if (const YAML::Node* value = map.find(kKeys[i])) costs_[i] = read_expression(*value, kKeys[i]);
    }
  }

  const OrderSource& source_;
  ir::DiagnosticSink& sink_;
  std::vector<PriorityEntry> entries_;
  std::vector<CapExpression> caps_;
  std::array<std::optional<Expression>, 3> costs_;
};

}  // namespace

std::shared_ptr<const OrderGenerator> read_priority(const OrderSource& source, ir::DiagnosticSink& sink) {
  return PriorityReader(source, sink).read();
}

}  // namespace fem::compiler
