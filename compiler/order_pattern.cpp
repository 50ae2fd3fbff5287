// The order `pattern`: a period, and the offset of every forward and input gradient of a chunk in unit slots; squeezed.
#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "compiler/order_kinds.hpp"
#include "compiler/pattern_grid.hpp"

namespace fem::compiler {
namespace {

struct OffsetExpression {
  OpKind kind = OpKind::F;
  int chunk = 0;
  Expression value;
};

class PatternGenerator final : public OrderGenerator {
 public:
  PatternGenerator(Expression period, std::vector<OffsetExpression> offsets)
      : period_(std::move(period)), offsets_(std::move(offsets)) {}

  std::optional<Order> generate(const ScheduleCase& sizes, const Placement& placement,
                                std::span<const std::vector<std::int64_t>> lets,
                                ir::DiagnosticSink& sink) const override {
    std::vector<SlotRow> grid;
    for (int rank = 0; rank < sizes.p; ++rank) {
      const auto& scope = lets[static_cast<std::size_t>(rank)];
      const auto period = period_.evaluate(scope, sink);
      if (!period) return std::nullopt;
      if (*period < 1) {
        period_.error(sink, fmt::format("rank {}: a period of {} slots", rank, *period));
        return std::nullopt;
      }
      std::vector<PatternOffset> offsets;
      for (const OffsetExpression& offset : offsets_) {
        const auto value = offset.value.evaluate(scope, sink);
        if (!value) return std::nullopt;
        offsets.push_back({offset.kind, offset.chunk, *value});
      }
      std::string reason;
      auto row = lay_out(offsets, *period, rank, placement, sizes.m, reason);
      if (!row) {
        period_.error(sink, fmt::format("{} (p={}, m={})", reason, sizes.p, sizes.m));
        return std::nullopt;
      }
      grid.push_back(std::move(*row));
    }
    const std::string fault = causality_fault(grid, placement, sizes.m);
    if (fault.empty()) return squeeze(grid, placement, sizes.m);
    period_.error(sink, fmt::format("{} (p={}, m={})", fault, sizes.p, sizes.m));
    return std::nullopt;
  }

 private:
  Expression period_;
  std::vector<OffsetExpression> offsets_;
};

std::vector<std::string> offset_keys(const Schedule& schedule) {
  std::vector<std::string> keys;
  for (const char kind : {'F', 'I'}) {
    for (int chunk = 0; chunk < schedule.chunks.high; ++chunk) keys.push_back(fmt::format("{}{}", kind, chunk));
  }
  return keys;
}

}  // namespace

std::shared_ptr<const OrderGenerator> read_pattern(const OrderSource& source, ir::DiagnosticSink& sink) {
  const Schedule& schedule = source.schedule;
  constexpr std::array<std::string_view, 2> kKeys = {"period", "offsets"};
  const int errors = sink.errors();
  const YamlMap map = read_map(source.file, source.node, "pattern", kKeys, sink);
  const YAML::Node* period_node = map.find("period");
  const YAML::Node* offsets_node = map.find("offsets");
  if (map.ok && (!period_node || !offsets_node)) {
    source.file.error(sink, source.node, "a pattern needs 'period' and 'offsets'");
  }
  if (!schedule.split) source.file.error(sink, source.node, "a pattern needs 'backward: split'");
  if (schedule.placement == PlacementKind::Bidirectional) {
    source.file.error(sink, source.node, "a pattern needs 'placement: loop' or 'placement: v'");
  }
  if (schedule.chunks.low != schedule.chunks.high) {
    source.file.error(sink, source.node, "a pattern needs a fixed number of chunks");
  }
  if (sink.errors() > errors) return nullptr;

  const auto names = schedule.names.until(schedule.names.lets_end);
  const auto read = [&](const YAML::Node& node, std::string_view what) {
    const auto text = read_scalar(source.file, node, what, sink);
    return text ? Expression::parse(*text, names, sink) : std::nullopt;
  };
  auto period = read(*period_node, "period");
  const std::vector<std::string> keys = offset_keys(schedule);
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  const YamlMap offsets_map = read_map(source.file, *offsets_node, "offsets", views, sink);
  std::vector<OffsetExpression> offsets;
  for (const std::string& key : keys) {
    const YAML::Node* node = offsets_map.find(key);
    if (!node) {
      source.file.error(sink, *offsets_node, fmt::format("the offset of {} is missing", key));
      continue;
    }
    auto value = read(*node, key);
    if (value) offsets.push_back({*op_kind(key[0]), std::atoi(key.c_str() + 1), std::move(*value)});
  }
  if (sink.errors() > errors) return nullptr;
  return std::make_shared<PatternGenerator>(std::move(*period), std::move(offsets));
}

}  // namespace fem::compiler
