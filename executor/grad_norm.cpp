#include "executor/grad_norm.hpp"

#include <algorithm>
#include <cmath>

namespace fem::exec {
namespace {

constexpr std::size_t kBlock = 4096, kSums = 8;

double block_sum(std::span<const float> values) {
  double sums[kSums] = {};
  const std::size_t whole = values.size() / kSums * kSums;
  for (std::size_t i = 0; i < whole; i += kSums)
    for (std::size_t j = 0; j < kSums; ++j) {
      const double x = values[i + j];
      sums[j] += x * x;
    }
  for (std::size_t i = whole; i < values.size(); ++i) {
    const double x = values[i];
    sums[i - whole] += x * x;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); i += kBlock)
    sum += block_sum(values.subspan(i, std::min(kBlock, values.size() - i)));
  return sum;
}

GradNorm::GradNorm(const ir::Plan& plan)
    : plan_(plan),
      mine_(static_cast<std::size_t>(parameter_slots(plan.settings))),
      gathered_(mine_.size() * static_cast<std::size_t>(plan.settings.parallel.pp)) {}

double GradNorm::operator()(const Parameters& parameters, Communicator& comm) {
  std::fill(mine_.begin(), mine_.end(), 0.0);
  for (const StageParameters& stage : parameters.stages()) {
    if (plan_.stages[static_cast<std::size_t>(stage.stage)].replica_of >= 0) continue;
    for (const UnitParameters& unit : stage.units)
      for (std::size_t i = 0; i < unit.grads.size(); ++i) {
        const bool second_copy = plan_.settings.model.tied && unit.kind == ir::UnitKind::head &&
                                 ir::info(unit.kind).params[i].name == "weight";
        if (second_copy) continue;
        const at::Tensor& grad = unit.grads[i];
        const auto slot = parameter_index(unit.unit, static_cast<std::int64_t>(i));
        mine_[static_cast<std::size_t>(slot)] =
            sum_of_squares({grad.const_data_ptr<float>(), static_cast<std::size_t>(grad.numel())});
      }
  }
  comm.all_gather(ir::Group::pp, mine_.data(), gathered_.data(), mine_.size() * sizeof(double));
  double sum = 0;
  for (std::size_t slot = 0; slot < mine_.size(); ++slot)
    for (std::size_t first = 0; first < gathered_.size(); first += mine_.size()) sum += gathered_[first + slot];
  return std::sqrt(sum);
}

std::string GradNorm::not_finite() const {
  std::size_t slot = 0;
  for (std::int64_t u = 0; u < ir::unit_count(plan_.settings); ++u)
    for (const ir::ParamInfo& param : ir::info(ir::unit_kind(plan_.settings, u)).params) {
      for (std::size_t pp = 0; pp * mine_.size() < gathered_.size(); ++pp)
        if (!std::isfinite(gathered_[pp * mine_.size() + slot]))
          return ir::param_hf_name(param, ir::unit_layer(u)) + " on pp " + std::to_string(pp);
      ++slot;
    }
  return {};
}

double gradient_scale(double normalised_norm, std::int64_t tokens, double limit) {
  const double scale = 1.0 / static_cast<double>(tokens);
  return limit > 0 && normalised_norm > limit ? scale * (limit / normalised_norm) : scale;
}

}  // namespace fem::exec
