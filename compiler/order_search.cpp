// The order `search`: the least stage span under a memory cap, for a split backward. It begins with the order that
// stands beside it, or without one with the automatic schedule of one stage a rank.
#include <array>

#include <fmt/format.h>

#include "compiler/order_kinds.hpp"
#include "compiler/weight_filling.hpp"
#include "compiler/zero_bubble_search.hpp"

namespace fem::compiler {
namespace {

// One number of the search: the key under its map ("" for the top), and what it is without being written.
struct Field {
  std::string_view map, key;
  std::int64_t value;
  std::int64_t least;
};
constexpr std::int64_t kAny = INT64_MIN;
constexpr std::array<Field, 10> kFields = {{
    {"costs", "F", 1, 1},
    {"costs", "I", 1, 1},
    {"costs", "W", 1, 1},
    {"costs", "transfer", 0, 0},
    {"memory", "F", 1, 1},
    {"memory", "I", 0, kAny},
    {"memory", "W", -1, kAny},
    {"", "cap", 0, 1},
    {"", "iterations", 0, 0},
    {"", "seed", 1, 0},
}};
constexpr std::size_t kCap = 7;

using Values = std::array<std::int64_t, kFields.size()>;

class SearchGenerator final : public OrderGenerator {
 public:
  using Expressions = std::array<std::optional<Expression>, kFields.size()>;
  SearchGenerator(Expressions expressions, std::shared_ptr<const OrderGenerator> start)
      : expressions_(std::move(expressions)), start_(std::move(start)) {}

  std::optional<Order> generate(const ScheduleCase& sizes, const Placement& placement,
                                std::span<const std::vector<std::int64_t>> lets,
                                ir::DiagnosticSink& sink) const override {
    const auto values = evaluate(lets.front(), sink);
    if (!values) return std::nullopt;
    const Values& v = *values;
    const SearchCosts costs{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[kCap]};
    const SearchBudget budget{v[8], static_cast<std::uint64_t>(v[9])};
    if (start_) return from_start(sizes, placement, lets, costs, budget, sink);
    if (const auto rows = search_zero_bubble(sizes.p, sizes.m, costs, budget)) return to_order(*rows, placement);
    expressions_[kCap]->error(
        sink, fmt::format("no order fits: the cap is {}, a forward takes {}", costs.cap, costs.forward_memory));
    return std::nullopt;
  }

 private:
  std::optional<Values> evaluate(std::span<const std::int64_t> scope, ir::DiagnosticSink& sink) const {
    Values values;
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      values[i] = kFields[i].value;
      if (!expressions_[i]) continue;
      const auto value = expressions_[i]->evaluate(scope, sink);
      if (!value) return std::nullopt;
      values[i] = *value;
      if (values[i] >= kFields[i].least) continue;
      expressions_[i]->error(sink, fmt::format("{} is {}, less than {}", kFields[i].key, values[i], kFields[i].least));
      return std::nullopt;
    }
    if (values[4] + values[5] + values[6] == 0) return values;
    expressions_[kCap]->error(sink, fmt::format("memory of F, I and W is {}, {} and {}: a microbatch would not leave "
                                                "the memory as it found it",
                                                values[4], values[5], values[6]));
    return std::nullopt;
  }

  std::optional<Order> from_start(const ScheduleCase& sizes, const Placement& placement,
                                  std::span<const std::vector<std::int64_t>> lets, const SearchCosts& costs,
                                  const SearchBudget& budget, ir::DiagnosticSink& sink) const {
    const auto order = start_->generate(sizes, placement, lets, sink);
    if (!order) return std::nullopt;
    auto rows = to_steps(*order, placement);
    if (!rows) {
      expressions_[kCap]->error(sink, "a search begins with F, I and W alone, microbatches of a stage ascending");
      return std::nullopt;
    }
    for (std::size_t rank = 0; rank < rows->size(); ++rank) {
      const std::int64_t peak = peak_memory((*rows)[rank], costs);
      if (peak <= costs.cap) continue;
      expressions_[kCap]->error(sink, fmt::format("the cap is {}, but the order that the search begins with takes {} "
                                                  "on rank {}",
                                                  costs.cap, peak, rank));
      return std::nullopt;
    }
    if (budget.iterations == 0) return order;
    StepRows filled = best_filling(std::move(*rows), placement, sizes.m, costs);
    return to_order(improve_order(std::move(filled), placement, sizes.m, costs, budget), placement);
  }

  Expressions expressions_;
  std::shared_ptr<const OrderGenerator> start_;
};

// What stands under `map` (the whole node for "") is read into the fields of that map.
bool read_fields(const OrderSource& source, const YAML::Node& node, std::string_view map,
                 std::vector<std::string_view> keys, SearchGenerator::Expressions& expressions,
                 ir::DiagnosticSink& sink) {
  for (const Field& field : kFields) {
    if (field.map == map) keys.push_back(field.key);
  }
  const YamlMap entries = read_map(source.file, node, map.empty() ? "search" : map, keys, sink);
  bool ok = entries.ok;
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    if (kFields[i].map != map) continue;
    const YAML::Node* value = entries.find(kFields[i].key);
    if (!value) continue;
    const auto text = read_scalar(source.file, *value, kFields[i].key, sink);
    const auto names = source.schedule.names.until(source.schedule.names.parameters_end);
    if (text) expressions[i] = Expression::parse(*text, names, sink);
    ok = ok && expressions[i];
  }
  if (!map.empty()) return ok;
  for (const std::string_view inner : {"costs", "memory"}) {
    const YAML::Node* below = entries.find(inner);
    if (below) ok = read_fields(source, *below, inner, {}, expressions, sink) && ok;
  }
  return ok;
}

}  // namespace

std::shared_ptr<const OrderGenerator> read_search(const OrderSource& source, ir::DiagnosticSink& sink) {
  const Schedule& schedule = source.schedule;
  if (!schedule.split || schedule.placement == PlacementKind::Bidirectional) {
    source.file.error(sink, source.node, "a search needs 'backward: split', and 'placement: loop' or 'placement: v'");
    return nullptr;
  }
  if (!source.start && (schedule.placement != PlacementKind::Loop || schedule.chunks.high > 1)) {
    source.file.error(sink, source.node,
                      "a search needs an order to begin with, such as 'phases', or 'placement: loop' and 'chunks: 1'");
    return nullptr;
  }
  SearchGenerator::Expressions expressions;
  if (!read_fields(source, source.node, "", {"costs", "memory"}, expressions, sink)) return nullptr;
  if (!expressions[kCap]) {
    source.file.error(sink, source.node, "a search needs 'cap', the memory that a rank may hold");
    return nullptr;
  }
  return std::make_shared<SearchGenerator>(std::move(expressions), source.start);
}

}  // namespace fem::compiler
