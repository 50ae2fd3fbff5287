#include "ir/beside_blocks.hpp"

#include <algorithm>

#include "ir/units.hpp"

namespace fem::ir {
std::int64_t constant_bytes(const Plan& plan, std::size_t rank) {
  const UnitDims dims = unit_dims(plan.settings);
  bool embedding = false, block = false, head = false;
  each_unit_of_rank(plan.stages, rank, [&](int unit) {
    switch (unit_kind(plan.settings, unit)) {
      case UnitKind::embedding: embedding = true; break;
      case UnitKind::block: block = true; break;
      case UnitKind::head: head = true; break;
    }
  });
  constexpr std::int64_t kFloat = 4, kTables = 3;  // cosines, sines, sines with the other sign
  std::int64_t bytes = 0;
  if (block) bytes += kTables * kFloat * dims.seq_len * (dims.head_dim / 2);
  if (plan.settings.model.tied && embedding != head)
    bytes += 2 * kFloat * std::min(dims.vocab * dims.hidden, kTiedPiece);
  for (const Stage& stage : plan.stages)
    if (static_cast<std::size_t>(stage.pp) == rank) bytes += kFloat;
  return bytes;
}

std::int64_t hidden_bytes(const Plan& plan, std::size_t rank) {
  const UnitDims dims = unit_dims(plan.settings);
  const UnitFormats formats = unit_formats(plan.settings);
  std::int64_t most = 0;
  each_unit_of_rank(plan.stages, rank, [&](int unit) {
    for (const auto phase : {Phase::forward, Phase::backward_input, Phase::backward_weight})
      most = std::max(most, hidden_bytes(unit_kind(plan.settings, unit), phase, dims, formats));
  });
  return most;
}

}  // namespace fem::ir
