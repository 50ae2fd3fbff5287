#include "executor/parameters.hpp"

#include <limits>

#include <ATen/ops/zeros.h>

#include "executor/error.hpp"
#include "executor/units/init.hpp"
#include "executor/units/memory.hpp"
#include "executor/weights/model_weights.hpp"
#include "ir/memory_blocks.hpp"

namespace fem::exec {
namespace {

// In fp32, but for zero 3, the owned part of the working copy is the master.
bool master_in_compute(const UnitParameters& unit) {
  return unit.compute_own.const_data_ptr() == unit.master.const_data_ptr();
}

std::int64_t align(std::int64_t n) { return (n + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment; }

}  // namespace

std::vector<at::Tensor> parameter_views(const at::Tensor& flat, ir::UnitKind kind, const ir::UnitDims& dims) {
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

Parameters::Parameters(const ir::Plan& plan, int pp, ReplicaPlace replica, c10::Device device)
    : replica_(replica), device_(device), by_lane_(plan.level >= ir::Level::Lane) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const ir::Stage& stage = plan.stages[s];
    if (stage.pp != pp) continue;
    StageParameters& mine = stages_.emplace_back();
    mine.stage = static_cast<std::int16_t>(s);
    for (int u = 0; u < stage.units; ++u) mine.units.push_back(make_unit(plan.settings, stage.first_unit + u));
  }
  // Views of what units share: made once the size is known.
  const ir::UnitDims dims = ir::unit_dims(plan.settings);
  for (StageParameters& stage : stages_)
    for (UnitParameters& unit : stage.units) {
      if (!unit.compute.defined()) unit.compute = gather_buffer_.narrow(0, 0, unit.elements);
      if (!unit.grad.defined()) unit.grad = grad_buffer_.narrow(0, 0, unit.elements);
      unit.compute_own = unit.compute.narrow(0, unit.owned_begin, unit.owned);
      unit.grad_own = unit.grad.narrow(0, unit.owned_begin, unit.owned);
      unit.params = parameter_views(unit.compute, unit.kind, dims);
      unit.grads = parameter_views(unit.grad, unit.kind, dims);
      if (unit.owns_all()) {
        unit.masters = parameter_views(unit.master, unit.kind, dims);
        unit.exp_avgs = parameter_views(unit.exp_avg, unit.kind, dims);
        unit.exp_avg_sqs = parameter_views(unit.exp_avg_sq, unit.kind, dims);
      }
      const bool moves = unit.moments_buffer.has_value();
      const at::Tensor exp_avg = moves ? unit.moments.narrow(0, 0, unit.owned) : unit.exp_avg;
      const at::Tensor exp_avg_sq = moves ? unit.moments.narrow(0, unit.owned, unit.owned) : unit.exp_avg_sq;
      each_part(unit.kind, dims, unit.owned_begin, unit.owned_begin + unit.owned,
                [&](std::int64_t param, std::int64_t offset, std::int64_t at, std::int64_t n) {
                  const auto part = [&](const at::Tensor& flat) { return flat.narrow(0, at - unit.owned_begin, n); };
                  unit.parts.push_back({param, offset, part(unit.master), part(unit.reduced), part(exp_avg),
                                        part(exp_avg_sq)});
                });
    }
}

at::Tensor Parameters::zeros(std::int64_t elements, at::ScalarType type) const {
  return at::zeros({elements}, at::TensorOptions(type).device(device_));
}

at::Tensor Parameters::host_zeros(std::int64_t elements) const {
  return at::zeros({elements}, at::TensorOptions(at::kFloat).device(device_.is_meta() ? device_ : at::kCPU));
}

// Of a buffer that units share: it grows to the largest of them.
at::Tensor Parameters::shared(at::Tensor& buffer, std::int64_t elements, at::ScalarType type) {
  if (!buffer.defined() || buffer.numel() < elements) buffer = zeros(elements, type);
  return {};
}

UnitParameters Parameters::make_unit(const ir::Settings& settings, std::int64_t index) {
  const std::int64_t zero = settings.parallel.zero;
  UnitParameters unit;
  unit.unit = index;
  unit.kind = ir::unit_kind(settings, index);
  unit.elements = flat_elements(unit.kind, ir::unit_dims(settings), replica_.count);
  unit.owned = zero > 0 ? unit.elements / replica_.count : unit.elements;
  unit.owned_begin = zero > 0 ? unit.owned * replica_.index : 0;
  const bool fp32 = settings.precision.compute == "fp32";
  const at::ScalarType format = compute_type(settings);
  const auto owned = [&](const at::Tensor& whole) { return whole.narrow(0, unit.owned_begin, unit.owned); };
  const auto in_arena = [&](std::optional<ArenaBuffer>& buffer, at::ScalarType type, std::int64_t elements) {
    buffer = ArenaBuffer{Window(elements * static_cast<std::int64_t>(c10::elementSize(type)), device_), {}};
    return buffer->window.view(0, {elements}, type);
  };
  if (zero < 3) {
    unit.compute = zeros(unit.elements, format);
  } else {
    unit.compute = by_lane_ ? in_arena(unit.compute_buffer, format, unit.elements)
                            : shared(gather_buffer_, unit.elements, format);
  }
  unit.master = fp32 && zero < 3 ? owned(unit.compute) : zeros(unit.owned, at::kFloat);
  unit.gathered = zero < 3;
  const bool moves = ir::offloads_optimizer(settings);
  unit.exp_avg = moves ? host_zeros(unit.owned) : zeros(unit.owned, at::kFloat);
  unit.exp_avg_sq = moves ? host_zeros(unit.owned) : zeros(unit.owned, at::kFloat);
  if (moves) unit.moments = in_arena(unit.moments_buffer, at::kFloat, 2 * unit.owned);
  unit.reduced_in_place = ir::reduced_once(settings, unit.kind);
  if (unit.reduced_in_place) {
    unit.grad = zeros(unit.elements, at::kFloat);
    unit.reduced = owned(unit.grad);
  } else {
    unit.grad = by_lane_ ? in_arena(unit.grad_buffer, at::kFloat, unit.elements)
                         : shared(grad_buffer_, unit.elements, at::kFloat);
    unit.reduced = zeros(unit.owned, at::kFloat);
  }
  return unit;
}

void Parameters::initialise(const ir::Settings& settings, std::uint64_t seed) {
  const ir::UnitDims dims = ir::unit_dims(settings);
  for (StageParameters& stage : stages_)
    for (UnitParameters& unit : stage.units) {
      // A part of a parameter has the values that it has in the whole.
      const at::Tensor whole = unit.owns_all() ? unit.master : at::zeros({unit.elements}, at::kFloat);
      const std::vector<at::Tensor> views = parameter_views(whole, unit.kind, dims);
      for (std::size_t i = 0; i < views.size(); ++i) {
        const bool is_norm = views[i].dim() == 1;  // the vectors of ir/units.def are scales of norms
        const std::string name = stored_name(settings, parameter_name(unit, i));
        init_parameter(views[i], name, seed, settings.model.init_std, is_norm);
      }
      if (!unit.owns_all()) set_master(unit, whole);
    }
  refresh_compute();
}

void Parameters::set_master(UnitParameters& unit, const at::Tensor& whole) {
  if (unit.gathered) unit.compute.copy_(whole);
  unit.master.copy_(whole.narrow(0, unit.owned_begin, unit.owned));
}

void Parameters::refresh_compute(UnitParameters& unit) {
  if (!master_in_compute(unit)) unit.compute_own.copy_(unit.master);
}

void Parameters::refresh_compute() {
  for (StageParameters& stage : stages_)
    for (UnitParameters& unit : stage.units)
      if (unit.gathered) refresh_compute(unit);
}

void Parameters::gather(UnitParameters& unit, Communicator& comm, ir::Group group) {
  FEM_CHECK(comm.group_size(group) * unit.owned == unit.elements,
            "unit " + std::to_string(unit.unit) + " has " + std::to_string(unit.elements) + " elements, but " +
                std::to_string(comm.group_size(group)) + " ranks of the group own " + std::to_string(unit.owned));
  if (gather_buffer_.defined()) {
    FEM_CHECK(in_gather_buffer_ == nullptr, "unit " + std::to_string(unit.unit) + " is gathered over unit " +
                                                std::to_string(in_gather_buffer_ ? in_gather_buffer_->unit : -1));
    in_gather_buffer_ = &unit;
  }
  refresh_compute(unit);
  comm.all_gather(group, unit.compute_own.const_data_ptr(), unit.compute.mutable_data_ptr(),
                  unit.compute_own.nbytes());
  unit.gathered = true;
}

void Parameters::release(UnitParameters& unit) {
  FEM_CHECK(unit.gathered, "unit " + std::to_string(unit.unit) + " is released without being gathered");
  if (poison_) {
    poison_others(unit);
    if (!master_in_compute(unit)) unit.compute_own.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  unit.gathered = false;
  if (in_gather_buffer_ == &unit) in_gather_buffer_ = nullptr;
}

void Parameters::outdate(UnitParameters& unit) {
  if (poison_ && unit.gathered) poison_others(unit);
}

void Parameters::poison_others(UnitParameters& unit) {
  const std::int64_t end = unit.owned_begin + unit.owned;
  unit.compute.narrow(0, 0, unit.owned_begin).fill_(std::numeric_limits<double>::quiet_NaN());
  unit.compute.narrow(0, end, unit.elements - end).fill_(std::numeric_limits<double>::quiet_NaN());
}

StageParameters* Parameters::find_stage(int stage) {
  for (StageParameters& mine : stages_)
    if (mine.stage == stage) return &mine;
  return nullptr;
}

const at::Tensor* Parameters::find_weight(ir::UnitKind kind) const {
  for (const StageParameters& stage : stages_)
    for (const UnitParameters& unit : stage.units)
      if (unit.kind == kind && unit.owns_all())
        return &unit.masters[static_cast<std::size_t>(param_position(kind, "weight"))];
  return nullptr;
}

}  // namespace fem::exec
