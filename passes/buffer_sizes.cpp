#include "passes/buffer_sizes.hpp"

#include <utility>

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
      unit.saved.push_back(slot.elements(dims) * format_bytes(settings, slot.format));
      unit.saved_all += unit.saved.back();
    }
    for (const ir::BufferInfo& work : info.work) unit.work += work.elements(dims) * format_bytes(settings, work.format);
  }
  return table;
}

StateBytes& StateBytes::operator+=(const StateBytes& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  optimizer += other.optimizer;
  return *this;
}

StateBytes state_bytes(const ir::Settings& settings, std::int64_t parameters) {
  const std::int64_t working = format_bytes(settings, ir::Format::Compute);
  return {working * parameters, 4 * parameters, (working == 4 ? 8 : 12) * parameters};
}

BufferSizes::BufferSizes(const ir::Plan& plan) : BufferSizes(plan, std::vector<StageBytes>(plan.stages.size())) {
  const ir::Settings& settings = plan.settings;
  const ir::UnitDims dims = ir::unit_dims(settings);
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const ir::Stage& stage = plan.stages[s];
    StageBytes& bytes = stages_[s];
    for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) {
      const UnitBytes& own = unit(ir::unit_kind(settings, u));
      bytes.parameters += own.parameters;
      bytes.saved += own.saved_all;
      bytes.work += own.work;
    }
    bytes.state = state_bytes(settings, bytes.parameters);
    bytes.activation = dims.tokens * dims.hidden * format_bytes(settings, ir::Format::Compute);
    bytes.saved_holds_input = stage.units > 0 && stage.prev >= 0;
    bytes.work_holds_grad_output = stage.units > 0 && stage.next >= 0;
  }
}

BufferSizes::BufferSizes(const ir::Plan& plan, std::vector<StageBytes> stages)
    : head_(ir::unit_count(plan.settings) - 1), units_(unit_bytes(plan.settings)), stages_(std::move(stages)) {}

const UnitBytes& BufferSizes::unit_of(const ir::Action& action) const {
  if (action.unit == 0) return unit(ir::UnitKind::embedding);
  return unit(action.unit == head_ ? ir::UnitKind::head : ir::UnitKind::block);
}

std::int64_t BufferSizes::saved(const ir::Action& action) const {
  if (action.unit < 0) return stage(action.stage).saved;
  const UnitBytes& unit = unit_of(action);
  const auto slot = static_cast<std::size_t>(action.slot);
  return action.slot < 0 ? unit.saved_all : slot < unit.saved.size() ? unit.saved[slot] : 0;
}

std::int64_t BufferSizes::work(const ir::Action& action) const {
  return action.unit < 0 ? stage(action.stage).work : unit_of(action).work;
}

std::int64_t BufferSizes::parameters(const ir::Action& action) const {
  return action.unit < 0 ? stage(action.stage).parameters : unit_of(action).parameters;
}

}  // namespace fem::passes
