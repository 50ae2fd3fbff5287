#include "passes/cost_model.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "ir/replicas.hpp"

namespace fem::passes {
namespace {

using ir::ActionKind;

constexpr double kGrad = 4;                  // bytes of a gradient accumulator's element, always fp32
constexpr double kLossBytes = 4 * 8;         // loss sum, tokens, finite and stop flags
constexpr double kNormBytes = 8;             // sum of squares
constexpr double kMoments = 8;               // bytes of both moments of an element
constexpr double kOptimizerBytes = 4 + 3 * 8;  // AdamW reads the gradient; reads and writes master and two moments

// Where only a part is measured, the rest stays estimated; a whole backward follows its parts.
PassSeconds replace(PassSeconds estimate, const PassTimes& measured) {
  if (measured.forward && estimate.forward > 0) {  // recomputing takes its share of it
    estimate.again *= *measured.forward / estimate.forward;
    estimate.cheap *= *measured.forward / estimate.forward;
  }
  estimate.forward = measured.forward.value_or(estimate.forward);
  estimate.input = measured.input.value_or(estimate.input);
  estimate.weight = measured.weight.value_or(estimate.weight);
  if (measured.backward) {
    estimate.backward = *measured.backward;
  } else if (measured.input || measured.weight) {
    estimate.backward = estimate.input + estimate.weight;
  }
  return estimate;
}

PassSeconds operator+(const PassSeconds& a, double seconds) {
  return {a.forward + seconds, a.input + seconds, a.weight + seconds, a.backward + seconds, a.again + seconds,
          a.cheap + seconds};
}

}  // namespace

PassSeconds unit_seconds(const ir::Settings& settings, const HardwareProfile& profile, ir::UnitKind kind) {
  const ir::UnitDims dims = ir::unit_dims(settings);
  const ir::UnitInfo& info = ir::info(kind);
  const UnitTable table = unit_bytes(settings);
  const UnitBytes& bytes = table[static_cast<std::size_t>(kind)];
  const auto working = static_cast<double>(format_bytes(settings, ir::Format::Compute));
  const double activation = static_cast<double>(dims.tokens * dims.hidden) * working;
  const double rate = profile.matmul_peak(number_format(settings)) * profile.efficiency;
  const auto roofline = [&](std::int64_t operations, double moved) {
    return std::max(static_cast<double>(operations) / rate, moved / profile.memory_bandwidth);
  };
  // An embedding touches the rows of its tokens alone.
  const auto touched = static_cast<double>(
      kind == ir::UnitKind::embedding ? std::min(bytes.parameters, dims.tokens * dims.hidden) : bytes.parameters);
  const auto saved = static_cast<double>(bytes.saved_all), work = static_cast<double>(bytes.work);
  PassSeconds seconds;
  // Each saved tensor is written by one operation and read by the next.
  seconds.forward = roofline(info.flops_forward(dims), touched * working + 2 * saved + activation);
  // The input gradient of an embedding hands its two tensors on.
  if (kind != ir::UnitKind::embedding) {
    seconds.input =
        roofline(info.flops_backward_input(dims), touched * working + saved + 2 * work + 2 * activation);
  }
  seconds.weight = roofline(info.flops_backward_weight(dims), work + 2 * kGrad * touched);
  seconds.backward = seconds.input + seconds.weight;
  // As a forward, but the output is not computed; the cheap slots are the second block, computed from the first.
  const auto dropped = static_cast<double>(bytes.saved_blocks[1]);
  seconds.again = roofline(info.flops_again(dims), touched * working + 2 * saved);
  if (info.flops_cheap(dims) > 0) seconds.cheap = roofline(info.flops_cheap(dims), touched * working + saved + dropped);
  return replace(seconds, profile.measured.unit[static_cast<std::size_t>(kind)]);
}

std::unique_ptr<PricedCosts> PricedCosts::create(const ir::Plan& plan, HardwareProfile profile,
                                                 ir::DiagnosticSink& sink) {
  const auto& parallel = plan.settings.parallel;
  const std::pair<const char*, std::int64_t> axes[] = {{"tp", parallel.tp}, {"cp", parallel.cp}, {"ep", parallel.ep}};
  for (const auto& [axis, size] : axes) {
    if (size == 1) continue;
    sink.error({}, "the plan has " + std::string(axis) + "=" + std::to_string(size) +
                       ": what a divided unit costs is not modelled, only " + axis + "=1 can be priced");
    return nullptr;
  }
  return std::unique_ptr<PricedCosts>(new PricedCosts(plan, std::move(profile)));
}

PricedCosts::PricedCosts(const ir::Plan& plan, HardwareProfile profile)
    : profile_(std::move(profile)),
      layout_(plan.settings, profile_.node_size),
      groups_(plan.stages, static_cast<int>(plan.settings.parallel.pp)),
      sizes_(plan),
      ranks_(static_cast<std::size_t>(plan.settings.parallel.pp)),
      pieces_(ir::pieces(plan.settings)),
      shards_(plan.settings.parallel.zero > 0 ? pieces_ : 1),
      head_(ir::unit_count(plan.settings) - 1),
      working_bytes_(static_cast<double>(format_bytes(plan.settings, ir::Format::Compute))),
      sent_bytes_(plan.settings.precision.reduce == "bf16" ? 2 : kGrad) {
  const ir::UnitDims dims = ir::unit_dims(plan.settings);
  tied_bytes_ = kGrad * static_cast<double>(dims.vocab * dims.hidden);
  for (int k = 0; k < ir::kUnitKinds; ++k) {
    units_[static_cast<std::size_t>(k)] = unit_seconds(plan.settings, profile_, static_cast<ir::UnitKind>(k));
  }
  price_stages(plan);
  map_ranks();
}

void PricedCosts::price_stages(const ir::Plan& plan) {
  parameters_.resize(ranks_);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const ir::Stage& stage = plan.stages[s];
    const StageBytes& bytes = sizes_.stage(static_cast<int>(s));
    parameters_[static_cast<std::size_t>(stage.pp)] += static_cast<double>(bytes.parameters);
    PassSeconds sum;
    for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) {
      const PassSeconds& unit = units_[static_cast<std::size_t>(ir::unit_kind(plan.settings, u))];
      sum.forward += unit.forward;
      sum.input += unit.input;
      sum.weight += unit.weight;
      sum.backward += unit.backward;
      sum.again += unit.again;
      sum.cheap += unit.cheap;
    }
    sum = sum + profile_.overhead;
    const auto measured = profile_.measured.stage.find(static_cast<int>(s));
    stages_.push_back(measured == profile_.measured.stage.end() ? sum : replace(sum, measured->second));
  }
}

void PricedCosts::map_ranks() {
  links_.resize(ranks_ * ranks_);
  for (std::size_t a = 0; a < ranks_; ++a) {
    for (std::size_t b = 0; b < ranks_; ++b) {
      links_[a * ranks_ + b] = a == b ? LinkLevel::InNode : layout_.link(static_cast<int>(a), static_cast<int>(b));
    }
  }
  // The same for every rank where the group spans ranks of the pipeline.
  const auto shared = [&](ir::Group group) { return layout_.shape(group, groups_.members(group, 0)); };
  const GroupShape world = shared(ir::Group::world), pp = shared(ir::Group::pp);
  for (std::size_t r = 0; r < ranks_; ++r) {
    for (int g = 0; g < ir::kGroups; ++g) {
      const auto group = static_cast<ir::Group>(g);
      shapes_.push_back(group == ir::Group::world ? world
                        : group == ir::Group::pp  ? pp
                                                  : layout_.shape(group, groups_.members(group, static_cast<int>(r))));
    }
  }
}

double PricedCosts::payload(const ir::Action& action) const {
  switch (action.kind) {
    case ActionKind::Unshard: return working_bytes_ * static_cast<double>(sizes_.parameters(action));
    // The sums come back in fp32.
    case ActionKind::AllReduce: return (sent_bytes_ + kGrad) / 2 * static_cast<double>(sizes_.parameters(action));
    case ActionKind::ReduceScatter: return sent_bytes_ * static_cast<double>(sizes_.parameters(action));
    case ActionKind::AllReduceShard:
      return (sent_bytes_ + kGrad) / 2 * static_cast<double>(sizes_.parameters(action)) / pieces_;
    case ActionKind::ReduceReplicaGrad: return kGrad * static_cast<double>(sizes_.parameters(action));
    case ActionKind::ReduceTiedGrad: return tied_bytes_;
    case ActionKind::ReduceLoss: return kLossBytes;
    case ActionKind::GradNorm: return kNormBytes;
    default: return 0;
  }
}

PassSeconds PricedCosts::passes_of(const ir::Action& action) const {
  if (action.unit < 0) return stages_[static_cast<std::size_t>(action.stage)];
  const ir::UnitKind kind = action.unit == 0      ? ir::UnitKind::embedding
                            : action.unit == head_ ? ir::UnitKind::head
                                                   : ir::UnitKind::block;
  return units_[static_cast<std::size_t>(kind)] + profile_.overhead;
}

// Elements that this rank clips and updates.
double PricedCosts::owned(const ir::Action& action) const {
  return static_cast<double>(sizes_.parameters(action)) / shards_;
}

// Of the stage's parameters, what the action's units have.
double PricedCosts::part_of_stage(const ir::Action& action) const {
  ir::Action whole = action;
  whole.unit = -1;
  return static_cast<double>(sizes_.parameters(action)) / static_cast<double>(sizes_.parameters(whole));
}

double PricedCosts::alone(int rank, const ir::Action& action) const {
  const double overhead = profile_.overhead;
  switch (action.kind) {
    case ActionKind::Forward: return passes_of(action).forward;
    case ActionKind::Recompute: return action.slot == 1 ? passes_of(action).cheap : passes_of(action).again;
    case ActionKind::Backward: return passes_of(action).backward;
    case ActionKind::BackwardInput: return passes_of(action).input;
    case ActionKind::BackwardWeight: return passes_of(action).weight;
    case ActionKind::Offload:
    case ActionKind::Reload: return overhead + static_cast<double>(sizes_.saved(action)) / profile_.host_bandwidth;
    case ActionKind::ReloadOptimizer:
    case ActionKind::OffloadOptimizer: return overhead + kMoments * owned(action) / profile_.host_bandwidth;
    case ActionKind::ZeroGrad: return overhead + memory(kGrad * static_cast<double>(sizes_.parameters(action)));
    case ActionKind::ClipGrad: return overhead + memory(2 * kGrad * owned(action));
    case ActionKind::OptimizerStep: {
      if (profile_.measured.optimizer) return *profile_.measured.optimizer * part_of_stage(action);
      const double written = working_bytes_ < kGrad ? working_bytes_ : 0;  // in fp32 the master is the working copy
      return overhead + memory((kOptimizerBytes + written) * owned(action));
    }
    case ActionKind::Unshard:
    case ActionKind::ReduceScatter:
      return overhead + gather_time(profile_, shape(action.group, rank), payload(action));
    case ActionKind::AllReduce:
    case ActionKind::AllReduceShard:
    case ActionKind::ReduceLoss:
      return overhead + all_reduce_time(profile_, shape(action.group, rank), payload(action));
    case ActionKind::ReduceReplicaGrad:
    case ActionKind::ReduceTiedGrad: {
      // Both copies lie on one rank: one sum is read from both and written to both.
      const GroupShape& group = shape(action.group, rank);
      if (group.ranks == 1) return overhead + memory(4 * payload(action));
      return overhead + all_reduce_time(profile_, group, payload(action));
    }
    case ActionKind::GradNorm:
      // Replicas sum a piece each, whatever ZeRO divides.
      return overhead + memory(kGrad * parameters_[static_cast<std::size_t>(rank)] / pieces_) +
             all_reduce_time(profile_, shape(action.group, rank), payload(action));
    case ActionKind::Reshard:
    case ActionKind::Free:
    case ActionKind::RecvForward:
    case ActionKind::SendForward:
    case ActionKind::RecvBackward:
    case ActionKind::SendBackward: return 0;
  }
  return 0;
}

double PricedCosts::action(const ir::Plan&, int rank, const ir::Action& action, const ir::Action* overlapped) const {
  return alone(rank, action) + (overlapped ? alone(rank, *overlapped) : 0);
}

double PricedCosts::transfer(const ir::Plan&, int from, int to, const ir::Action& half) const {
  if (profile_.measured.p2p) return *profile_.measured.p2p;
  const Link& link = profile_.link(this->link(from, to));
  return link.latency + static_cast<double>(sizes_.stage(half.stage).activation) / link.bandwidth;
}

}  // namespace fem::passes
