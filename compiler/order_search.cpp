// The order `search`: the least stage span under a memory cap, for one stage a rank and a split backward.
#include <array>

#include <fmt/format.h>

#include "compiler/order_kinds.hpp"
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
  explicit SearchGenerator(Expressions expressions) : expressions_(std::move(expressions)) {}

  std::optional<Order> generate(const ScheduleCase& sizes, const Placement&,
                                std::span<const std::vector<std::int64_t>> lets,
                                ir::DiagnosticSink& sink) const override {
    Values values;
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      values[i] = kFields[i].value;
      if (!expressions_[i]) continue;
      const auto value = expressions_[i]->evaluate(lets.front(), sink);
      if (!value) return std::nullopt;
      values[i] = *value;
      if (values[i] >= kFields[i].least) continue;
      expressions_[i]->error(sink, fmt::format("{} is {}, less than {}", kFields[i].key, values[i], kFields[i].least));
      return std::nullopt;
    }
    const SearchCosts costs{values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[kCap]};
    if (costs.forward_memory + costs.input_memory + costs.weight_memory != 0) {
      expressions_[kCap]->error(sink, fmt::format("memory of F, I and W is {}, {} and {}: a microbatch would not leave "
                                                  "the memory as it found it",
                                                  values[4], values[5], values[6]));
      return std::nullopt;
    }
    const auto rows = search_zero_bubble(sizes.p, sizes.m, costs, {values[8], static_cast<std::uint64_t>(values[9])});
    if (rows) return to_order(*rows);
    expressions_[kCap]->error(
        sink, fmt::format("no order fits: the cap is {}, a forward takes {}", costs.cap, costs.forward_memory));
    return std::nullopt;
  }

 private:
  Expressions expressions_;
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
  const bool plain = schedule.split && schedule.placement == PlacementKind::Loop && schedule.chunks.high == 1;
  if (!plain) {
    source.file.error(sink, source.node, "a search needs 'placement: loop', 'chunks: 1' and 'backward: split'");
    return nullptr;
  }
  SearchGenerator::Expressions expressions;
  if (!read_fields(source, source.node, "", {"costs", "memory"}, expressions, sink)) return nullptr;
  if (!expressions[kCap]) {
    source.file.error(sink, source.node, "a search needs 'cap', the memory that a rank may hold");
    return nullptr;
  }
  return std::make_shared<SearchGenerator>(std::move(expressions));
}

}  // namespace fem::compiler
