#include "executor/parameters.hpp"

#include <ATen/ops/zeros.h>

#include "executor/error.hpp"
#include "executor/units/init.hpp"
#include "executor/weights/model_weights.hpp"

namespace fem::exec {
namespace {

std::int64_t align(std::int64_t n) { return (n + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment; }

std::vector<at::Tensor> views(const at::Tensor& flat, ir::UnitKind kind, const ir::UnitDims& dims) {
  std::vector<at::Tensor> result;
  std::int64_t offset = 0;
  for (const ir::ParamInfo& param : ir::info(kind).params) {
    const std::int64_t rows = param.rows(dims), cols = param.cols(dims), n = param.elements(dims);
    at::Tensor part = flat.narrow(0, offset, n);
    result.push_back(cols ? part.view({rows, cols}) : part);
    offset += align(n);
  }
  return result;
}

UnitParameters make_unit_parameters(const ir::Settings& settings, std::int64_t unit) {
  const ir::UnitDims dims = ir::unit_dims(settings);
  UnitParameters p;
  p.unit = unit;
  p.kind = ir::unit_kind(settings, unit);
  const std::int64_t n = flat_elements(p.kind, dims);
  const bool bf16 = settings.precision.compute == "bf16";
  p.master = at::zeros({n}, at::kFloat);
  p.compute = bf16 ? at::zeros({n}, at::kBFloat16) : p.master;
  p.grad = at::zeros({n}, at::kFloat);
  p.exp_avg = at::zeros({n}, at::kFloat);
  p.exp_avg_sq = at::zeros({n}, at::kFloat);
  p.masters = views(p.master, p.kind, dims);
  p.params = views(p.compute, p.kind, dims);
  p.grads = views(p.grad, p.kind, dims);
  p.exp_avgs = views(p.exp_avg, p.kind, dims);
  p.exp_avg_sqs = views(p.exp_avg_sq, p.kind, dims);
  return p;
}

}  // namespace

std::int64_t flat_elements(ir::UnitKind kind, const ir::UnitDims& dims) {
  std::int64_t n = 0;
  for (const ir::ParamInfo& param : ir::info(kind).params) n += align(param.elements(dims));
  return n;
}

std::string parameter_name(const UnitParameters& unit, std::size_t param) {
  return ir::param_hf_name(ir::info(unit.kind).params[param], ir::unit_layer(unit.unit));
}

std::int64_t param_position(ir::UnitKind kind, std::string_view name) {
  const auto params = ir::info(kind).params;
  for (std::size_t i = 0; i < params.size(); ++i)
    if (params[i].name == name) return static_cast<std::int64_t>(i);
  return -1;
}

std::int64_t parameter_index(std::int64_t unit, std::int64_t param) {
  if (unit == 0) return param;
  const auto rows = [](ir::UnitKind kind) { return static_cast<std::int64_t>(ir::info(kind).params.size()); };
  return rows(ir::UnitKind::embedding) + (unit - 1) * rows(ir::UnitKind::block) + param;
}

std::int64_t parameter_slots(const ir::Settings& settings) {
  const std::int64_t head = ir::unit_count(settings) - 1;
  return parameter_index(head, static_cast<std::int64_t>(ir::info(ir::UnitKind::head).params.size()));
}

Parameters::Parameters(const ir::Plan& plan, int pp) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const ir::Stage& stage = plan.stages[s];
    if (stage.pp != pp) continue;
    StageParameters& mine = stages_.emplace_back();
    mine.stage = static_cast<std::int16_t>(s);
    for (int u = 0; u < stage.units; ++u)
      mine.units.push_back(make_unit_parameters(plan.settings, stage.first_unit + u));
  }
}

void Parameters::initialise(const ir::Settings& settings, std::uint64_t seed) {
  for (StageParameters& stage : stages_)
    for (UnitParameters& unit : stage.units)
      for (std::size_t i = 0; i < unit.masters.size(); ++i) {
        const bool is_norm = unit.masters[i].dim() == 1;  // the vectors of ir/units.def are scales of norms
        const std::string name = stored_name(settings, parameter_name(unit, i));
        init_parameter(unit.masters[i], name, seed, settings.model.init_std, is_norm);
      }
  refresh_compute();
}

void Parameters::refresh_compute(UnitParameters& unit) {
  if (!unit.compute.is_same(unit.master)) unit.compute.copy_(unit.master);
}

void Parameters::refresh_compute() {
  for (StageParameters& stage : stages_)
    for (UnitParameters& unit : stage.units) refresh_compute(unit);
}

StageParameters* Parameters::find_stage(int stage) {
  for (StageParameters& mine : stages_)
    if (mine.stage == stage) return &mine;
  return nullptr;
}

const at::Tensor* Parameters::find_weight(ir::UnitKind kind) const {
  for (const StageParameters& stage : stages_)
    for (const UnitParameters& unit : stage.units)
      if (unit.kind == kind) return &unit.masters[static_cast<std::size_t>(param_position(kind, "weight"))];
  return nullptr;
}

}  // namespace fem::exec
