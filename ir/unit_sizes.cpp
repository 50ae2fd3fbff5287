#include "ir/unit_sizes.hpp"

#include <algorithm>

#include "ir/replicas.hpp"

namespace fem::ir {

UnitSizeTable unit_sizes(const Settings& settings) {
  const UnitDims dims = unit_dims(settings);
  const UnitFormats formats = unit_formats(settings);
  const int pieces = ir::pieces(settings);
  UnitSizeTable table;
  for (int k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    const auto block = [&](UnitBlock b) { return block_bytes(kind, b, dims, formats); };
    const auto scratch = [&](Phase p) { return workspace_bytes(kind, p, dims, formats); };
    const std::int64_t elements = flat_elements(kind, dims, pieces);
    const std::int64_t owned = settings.parallel.zero > 0 ? elements / pieces : elements;
    table[static_cast<std::size_t>(k)] = {
        block(UnitBlock::output), block(UnitBlock::saved_b), block(UnitBlock::saved_w), block(UnitBlock::work),
        aligned(formats.compute * dims.tokens * dims.hidden), formats.compute * elements, 4 * elements,
        8 * owned,
        {scratch(Phase::forward), scratch(Phase::backward_input), scratch(Phase::backward_weight)}};
  }
  return table;
}

std::int64_t workspace_bytes(const UnitSizes& unit, ActionKind kind) {
  const auto of = [&](Phase phase) { return unit.workspace[static_cast<std::size_t>(phase)]; };
  if (kind == ActionKind::Forward || kind == ActionKind::Recompute) return of(Phase::forward);
  return std::max(is_input_backward(kind) ? of(Phase::backward_input) : 0,
                  is_weight_backward(kind) ? of(Phase::backward_weight) : 0);
}

}  // namespace fem::ir
