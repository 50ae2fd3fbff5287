#include "passes/sharding.hpp"

#include <utility>

#include "ir/builder.hpp"
#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/replicas.hpp"
#include "ir/units.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

Action on(ActionKind kind, int stage, int unit, ir::Group group = ir::Group::none) {
  Action a = ir::action(kind, stage);
  a.unit = static_cast<std::int16_t>(unit);
  a.group = group;
  return a;
}

constexpr int kWholeStage = -1;

// What the settings say, 0 where they say nothing; the verifier refuses what cannot be read.
std::int64_t bytes(const std::string& text) { return ir::parse_bytes(text).value_or(0); }

}  // namespace

Sharding::Sharding(const ir::Plan& plan)
    : plan_(plan),
      sizes_(ir::unit_sizes(plan.settings)),
      zero_(plan.settings.parallel.zero),
      resident_bytes_(zero_ == 3 ? bytes(plan.settings.parallel.resident) : 0),
      bucket_bytes_(bytes(plan.settings.parallel.bucket)),
      before_use_(ir::gathers_before_use(plan.settings)),
      groups_(ir::has_shard_groups(plan.settings)),
      reduce_(plan.settings.parallel.reduce == "microbatch" ? Reduce::microbatch
              : plan.settings.parallel.reduce == "bucket"   ? Reduce::bucket
                                                            : Reduce::step) {}

std::vector<Action> Sharding::rewrite(std::span<const Action> actions) {
  out_.clear();
  out_.reserve(2 * actions.size());
  uses_.emplace(plan_, actions);
  resident_ = uses_->residents(resident_bytes_);
  gathered_.assign(uses_->rows(), false);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    const bool uses = a.unit >= 0 && ir::info(a.kind).reads.has(ir::ResourceKind::Params);
    if (uses) gather(a);
    if (a.stage < 0) end_of_schedule();  // nothing computes after the first reduction of the rank
    switch (a.kind) {
      case ActionKind::ZeroGrad: zero_grads(a.stage); break;
      case ActionKind::AllReduce: reduce_stage(a.stage); break;
      case ActionKind::Backward:
      case ActionKind::BackwardWeight: gradient(a, i); break;
      case ActionKind::OptimizerStep: update(a); break;
      default: out_.push_back(a); break;
    }
    if (uses) use_ends(a, i);
  }
  end_of_schedule();
  return std::move(out_);
}

void Sharding::end_of_schedule() {
  release();
  flush_bucket();
}

// Gradients of tied copies are complete only at the end of the step, when ReduceTiedGrad has added them.
Sharding::Reduce Sharding::reduce_of(int unit) const {
  const bool tied = plan_.settings.model.tied && ir::unit_kind(plan_.settings, unit) != ir::UnitKind::block;
  return tied ? Reduce::step : reduce_;
}

template <class Use>
void Sharding::each_tied(int s, Use use) {
  const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(s)];
  for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) {
    if (reduce_of(u) == Reduce::step) use(u);
  }
}

// Of the gradients that accumulate over the step.
void Sharding::zero_grads(int stage) {
  if (reduce_ != Reduce::microbatch) return out_.push_back(on(ActionKind::ZeroGrad, stage, kWholeStage));
  each_tied(stage, [&](int unit) { out_.push_back(on(ActionKind::ZeroGrad, stage, unit)); });
}

// At the end of the step, what has not been reduced before.
void Sharding::reduce_stage(int stage) {
  if (reduce_ == Reduce::step) {
    reduce(stage, kWholeStage);
  } else {
    each_tied(stage, [&](int unit) { reduce(stage, unit); });
  }
  // The sums of microbatches add up before they leave the group.
  if (groups_ && reduce_ != Reduce::bucket) {
    out_.push_back(on(ActionKind::AllReduceShard, stage, kWholeStage, ir::Group::replicate));
  }
}

void Sharding::gradient(const Action& a, std::size_t index) {
  const Reduce when = reduce_of(a.unit);
  if (when == Reduce::microbatch) out_.push_back(on(ActionKind::ZeroGrad, a.stage, a.unit));
  out_.push_back(a);
  if (when == Reduce::microbatch) reduce(a.stage, a.unit);
  if (when != Reduce::bucket || uses_->at(uses_->row(a.stage, a.unit)).last_gradient != index) return;
  bucket_.push_back({a.stage, a.unit});
  in_bucket_ += ir::sizes_of(sizes_, plan_.settings, a.unit).grads;
  if (in_bucket_ >= bucket_bytes_) flush_bucket();
}

void Sharding::flush_bucket() {
  for (const Unit& unit : bucket_) reduce(unit.stage, unit.unit);
  bucket_.clear();
  in_bucket_ = 0;
}

void Sharding::reduce(int stage, int unit) {
  out_.push_back(zero_ > 0 ? on(ActionKind::ReduceScatter, stage, unit, ir::piece_group(plan_.settings))
                           : on(ActionKind::AllReduce, stage, unit, ir::Group::dp_cp));
  if (groups_ && reduce_ == Reduce::bucket) {
    out_.push_back(on(ActionKind::AllReduceShard, stage, unit, ir::Group::replicate));
  }
}

void Sharding::update(const Action& a) {
  if (ir::offloads_optimizer(plan_.settings)) {
    ir::each_unit(plan_.stages[static_cast<std::size_t>(a.stage)], a, [&](int unit) {
      Action step = a;
      step.unit = static_cast<std::int16_t>(unit);
      out_.push_back(on(ActionKind::ReloadOptimizer, a.stage, unit));
      out_.push_back(step);
      out_.push_back(on(ActionKind::OffloadOptimizer, a.stage, unit));
    });
  } else {
    out_.push_back(a);
  }
  // The working copies of the other ranks' parts are old now.
  if ((zero_ == 1 || zero_ == 2) && !before_use_) {
    out_.push_back(on(ActionKind::Unshard, a.stage, kWholeStage, ir::piece_group(plan_.settings)));
  }
}

// Of the units that are not resident one is gathered at a time: consecutive uses share a gather.
void Sharding::gather(const Action& a) {
  if (zero_ < 3 && !before_use_) return;
  const Unit unit{a.stage, a.unit};
  const std::size_t row = uses_->row(a.stage, a.unit);
  if (held_ != unit) release();
  if (gathered_[row]) return;
  gathered_[row] = true;
  out_.push_back(on(ActionKind::Unshard, a.stage, a.unit, ir::piece_group(plan_.settings)));
  if (zero_ == 3 && !resident_[row]) held_ = unit;
}

void Sharding::use_ends(const Action& a, std::size_t index) {
  const std::size_t row = uses_->row(a.stage, a.unit);
  if (resident_[row] && uses_->at(row).last_use == index) out_.push_back(on(ActionKind::Reshard, a.stage, a.unit));
}

void Sharding::release() {
  if (!held_) return;
  out_.push_back(on(ActionKind::Reshard, held_->stage, held_->unit));
  gathered_[uses_->row(held_->stage, held_->unit)] = false;
  held_.reset();
}

}  // namespace fem::passes
