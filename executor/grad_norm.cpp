#include "executor/grad_norm.hpp"

#include <algorithm>
#include <cmath>

#include "executor/units/formats.hpp"
#include "ir/replicas.hpp"

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

GradNorm::GradNorm(const ir::Plan& plan, ReplicaPlace replica)
    : plan_(plan),
      replica_(replica),
      slots_(static_cast<std::size_t>(parameter_slots(plan.settings))),
      mine_(slots_ * static_cast<std::size_t>(replica.count)),
      gathered_(mine_.size() * static_cast<std::size_t>(plan.settings.parallel.pp)) {}

void GradNorm::add(const UnitParameters& unit, int piece) {
  const std::int64_t size = unit.elements / replica_.count;
  each_part(unit.kind, ir::unit_dims(plan_.settings), piece * size, (piece + 1) * size,
            [&](std::int64_t param, std::int64_t, std::int64_t at, std::int64_t n) {
              const bool second_copy = plan_.settings.model.tied && unit.kind == ir::UnitKind::head &&
                                       ir::info(unit.kind).params[static_cast<std::size_t>(param)].name == "weight";
              if (second_copy) return;
              const auto slot = static_cast<std::size_t>(parameter_index(unit.unit, param));
              over_memory(unit.reduced, [&] {
                const auto* values = in<float>(unit.reduced) + (at - unit.owned_begin);
                mine_[static_cast<std::size_t>(piece) * slots_ + slot] =
                    sum_of_squares({values, static_cast<std::size_t>(n)});
              });
            });
}

double GradNorm::operator()(const Parameters& parameters, Communicator& comm) {
  const bool sharded = plan_.settings.parallel.zero > 0;
  std::fill(mine_.begin(), mine_.end(), 0.0);
  for (const StageParameters& stage : parameters.stages()) {
    if (plan_.stages[static_cast<std::size_t>(stage.stage)].replica_of >= 0) continue;
    for (const UnitParameters& unit : stage.units)
      for (int piece = 0; piece < replica_.count; ++piece)
        if (!sharded || piece == replica_.index) add(unit, piece);
  }
  if (sharded)
    comm.all_gather(ir::piece_group(plan_.settings), mine_.data() + static_cast<std::size_t>(replica_.index) * slots_,
                    mine_.data(), slots_ * sizeof(double));
  comm.all_gather(ir::Group::pp, mine_.data(), gathered_.data(), mine_.size() * sizeof(double));
  double sum = 0;
  for (std::size_t slot = 0; slot < slots_; ++slot)
    for (std::size_t piece = slot; piece < mine_.size(); piece += slots_)
      for (std::size_t first = 0; first < gathered_.size(); first += mine_.size()) sum += gathered_[first + piece];
  return std::sqrt(sum);
}

std::string GradNorm::not_finite(const Topology& topology) const {
  const bool sharded = plan_.settings.parallel.zero > 0;
  std::size_t slot = 0;
  for (std::int64_t u = 0; u < ir::unit_count(plan_.settings); ++u)
    for (const ir::ParamInfo& param : ir::info(ir::unit_kind(plan_.settings, u)).params) {
      for (std::size_t at = slot; at < gathered_.size(); at += slots_)
        if (!std::isfinite(gathered_[at])) {
          const std::size_t piece = at % mine_.size() / slots_;
          const int first = topology.rank({.pp = static_cast<int>(at / mine_.size())});
          const int rank = topology.members(ir::piece_group(plan_.settings), first)[sharded ? piece : 0];
          return ir::param_hf_name(param, ir::unit_layer(u)) + " on " + topology.rank_text(rank);
        }
      ++slot;
    }
  return {};
}

double gradient_scale(double normalised_norm, std::int64_t tokens, double limit) {
  const double scale = 1.0 / static_cast<double>(tokens);
  return limit > 0 && normalised_norm > limit ? scale * (limit / normalised_norm) : scale;
}

}  // namespace fem::exec
