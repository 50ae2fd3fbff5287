#include "passes/buffer_sizes.hpp"

namespace fem::passes {

std::int64_t format_bytes(const ir::Settings& settings, ir::Format format) {
  switch (format) {
    case ir::Format::Compute: return settings.precision.compute == "fp32" ? 4 : 2;
    case ir::Format::Float32: return 4;
    case ir::Format::Int64: return 8;
  }
  return 0;
}

UnitTable unit_bytes(const ir::Settings& settings) {
  const ir::UnitDims dims = ir::unit_dims(settings);
  UnitTable table;
  for (int k = 0; k < ir::kUnitKinds; ++k) {
    const ir::UnitInfo& info = ir::info(static_cast<ir::UnitKind>(k));
    UnitBytes& unit = table[static_cast<std::size_t>(k)];
    for (const ir::ParamInfo& param : info.params) unit.parameters += param.elements(dims);
    for (const ir::BufferInfo& slot : info.saved) {
      unit.saved_all += slot.elements(dims) * format_bytes(settings, slot.format);
    }
    const auto block = [&](ir::UnitBlock which) {
      return ir::block_bytes(static_cast<ir::UnitKind>(k), which, dims, ir::unit_formats(settings));
    };
    unit.saved_blocks = {block(ir::UnitBlock::saved_b), block(ir::UnitBlock::saved_w)};
    for (const ir::BufferInfo& work : info.work) unit.work += work.elements(dims) * format_bytes(settings, work.format);
  }
  return table;
}

BufferSizes::BufferSizes(const ir::Plan& plan)
    : head_(ir::unit_count(plan.settings) - 1), units_(unit_bytes(plan.settings)), stages_(plan.stages.size()) {
  const ir::Settings& settings = plan.settings;
  const ir::UnitDims dims = ir::unit_dims(settings);
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const ir::Stage& stage = plan.stages[s];
    StageBytes& bytes = stages_[s];
    for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) {
      const UnitBytes& own = unit(ir::unit_kind(settings, u));
      bytes.parameters += own.parameters;
      bytes.saved += own.saved_all;
    }
    bytes.activation = dims.tokens * dims.hidden * format_bytes(settings, ir::Format::Compute);
  }
}

const UnitBytes& BufferSizes::unit_of(const ir::Action& action) const {
  if (action.unit == 0) return unit(ir::UnitKind::embedding);
  return unit(action.unit == head_ ? ir::UnitKind::head : ir::UnitKind::block);
}

std::int64_t BufferSizes::saved(const ir::Action& action) const {
  if (action.unit < 0) return stage(action.stage).saved;
  const UnitBytes& unit = unit_of(action);
  return action.slot < 0 ? unit.saved_all : unit.saved_blocks[static_cast<std::size_t>(action.slot)];
}

std::int64_t BufferSizes::parameters(const ir::Action& action) const {
  return action.unit < 0 ? stage(action.stage).parameters : unit_of(action).parameters;
}

}  // namespace fem::passes
