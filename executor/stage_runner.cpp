#include "executor/stage_runner.hpp"

#include <cstring>
#include <string>

#include "executor/error.hpp"

namespace fem::exec {

StageRunner::StageRunner(const ir::Plan& plan, Parameters& parameters, const ParallelContext& context,
                         Activations& activations)
    : activations_(activations),
      first_sample_(context.dp_rank * (plan.settings.batch.global / plan.settings.parallel.dp)),
      micro_(plan.settings.batch.micro),
      local_(plan.stages.size()) {
  for (StageParameters& mine : parameters.stages()) {
    const ir::Stage& stage = plan.stages[static_cast<std::size_t>(mine.stage)];
    auto local = std::make_unique<Local>();
    local->previous = stage.prev;
    local->first = stage.prev < 0;
    local->last = stage.next < 0;
    for (UnitParameters& unit : mine.units) local->units.push_back(make_local(plan.settings, unit, context));
    local_[static_cast<std::size_t>(mine.stage)] = std::move(local);
  }
}

StageRunner::LocalUnit StageRunner::make_local(const ir::Settings& settings, UnitParameters& parameters,
                                               const ParallelContext& context) {
  const auto kind = ir::unit_kind(settings, parameters.unit);
  if (kind == ir::UnitKind::block && !rotary_) rotary_.emplace(make_rotary(settings, parameters.compute.device()));
  const auto dims = ir::unit_dims(settings);
  const auto formats = ir::unit_formats(settings);
  const auto block = [&](ir::UnitBlock b) { return ir::block_bytes(kind, b, dims, formats); };
  const auto workspace = [&](ir::Phase p) { return ir::workspace_bytes(kind, p, dims, formats); };
  return {make_unit(settings, parameters.unit, context, parameters.params, parameters.grads,
                    rotary_ ? &*rotary_ : nullptr),
          ir::saved_w_is_cheap(kind),
          block(ir::UnitBlock::saved_b),
          block(ir::UnitBlock::saved_w),
          block(ir::UnitBlock::work),
          workspace(ir::Phase::forward),
          workspace(ir::Phase::backward_input),
          workspace(ir::Phase::backward_weight)};
}

void StageRunner::begin(bool train, std::int64_t step, double loss_scale) {
  step_ = {train, step, first_sample_, static_cast<float>(loss_scale)};
}

CallContext StageRunner::context(int m) const {
  CallContext context = step_;
  context.sample += m * micro_;
  return context;
}

StageRunner::Local& StageRunner::local(int stage) {
  FEM_CHECK(has_stage(stage), "stage " + std::to_string(stage) + " is not on this rank");
  return *local_[static_cast<std::size_t>(stage)];
}

Block StageRunner::take_input(const Local& here, int stage, int m, int unit) {
  if (unit == 0) return here.first ? Block() : activations_.take_output(activations_.index(here.previous, m));
  Block& output = activations_.unit(activations_.index(stage, m), static_cast<std::size_t>(unit - 1)).output;
  FEM_CHECK(output, "the output of the unit before is read before it is written");
  return std::move(output);
}

void StageRunner::forward(int stage, int m, int unit, const Microbatch& batch, Keep keep, LossReduction& losses) {
  Local& here = local(stage);
  LocalUnit& own = here.units[static_cast<std::size_t>(unit)];
  const std::int64_t index = activations_.index(stage, m);
  UnitBlocks& blocks = activations_.unit(index, static_cast<std::size_t>(unit));
  const bool last = unit + 1 == units(stage);
  BlockPool& pool = activations_.pool();

  if (here.first && unit == 0) losses.first_stage_read(m, hash_microbatch(batch));
  if (here.last && last) losses.last_stage_read(m, hash_microbatch(batch));
  Block x = take_input(here, stage, m, unit);
  // In the order of ir/memory_blocks. What is not kept goes back at once: in blocks rather than behind the workspace,
  // for blocks are there anyway.
  Block saved_b = pool.take(own.saved_b);
  Block saved_w = pool.take(own.saved_w);
  Block y = here.last && last ? Block() : activations_.activation();
  own.run->forward({.x = x.data(), .y = y.data(), .saved_b = saved_b.data(), .saved_w = saved_w.data(),
                    .workspace = pool.workspace(own.forward)},
                   batch, &losses.loss(m), context(m));
  if (keep == Keep::everything || keep == Keep::expensive) blocks.saved_b = std::move(saved_b);
  if (keep == Keep::everything || (keep == Keep::expensive && !own.cheap)) blocks.saved_w = std::move(saved_w);
  if (keep != Keep::nothing) blocks.input = std::move(x);
  if (!y) return;
  if (last) {
    activations_.put_output(index, std::move(y));
  } else {
    blocks.output = std::move(y);
  }
}

void StageRunner::recompute(int stage, int m, int unit, const Microbatch& batch, Recompute what) {
  LocalUnit& own = local(stage).units[static_cast<std::size_t>(unit)];
  UnitBlocks& blocks = activations_.unit(activations_.index(stage, m), static_cast<std::size_t>(unit));
  BlockPool& pool = activations_.pool();
  if (what == Recompute::cheap && !own.cheap) return;  // nothing was dropped
  FEM_CHECK(own.run->kind() == ir::UnitKind::embedding || blocks.input,
            "saved tensors are recomputed from an input that was not kept");
  FEM_CHECK(!blocks.saved_w || own.saved_w == 0, "saved tensors are recomputed that were kept");
  if (what == Recompute::everything) {
    FEM_CHECK(!blocks.saved_b || own.saved_b == 0, "saved tensors are recomputed that were kept");
    blocks.saved_b = pool.take(own.saved_b);
  } else {
    FEM_CHECK(blocks.saved_b, "the cheap tensors are recomputed from others that were not kept");
  }
  blocks.saved_w = pool.take(own.saved_w);
  own.run->recompute({.x = blocks.input.data(), .saved_b = blocks.saved_b.data(), .saved_w = blocks.saved_w.data(),
                      .workspace = pool.workspace(own.forward)},
                     batch, what, context(m));
}

void StageRunner::free_saved(int stage, int m, int unit, Recompute what) {
  const LocalUnit& own = local(stage).units[static_cast<std::size_t>(unit)];
  UnitBlocks& blocks = activations_.unit(activations_.index(stage, m), static_cast<std::size_t>(unit));
  if (what == Recompute::everything) blocks.saved_b.reset();
  if (what == Recompute::everything || own.cheap) blocks.saved_w.reset();
}

// Calls move(block, its copy in host memory, bytes) for what the slot names.
template <class Move>
void StageRunner::each_saved(int stage, int m, int unit, int slot, Move move) {
  const LocalUnit& own = local(stage).units[static_cast<std::size_t>(unit)];
  UnitBlocks& blocks = activations_.unit(activations_.index(stage, m), static_cast<std::size_t>(unit));
  if (slot != 1 && own.saved_b > 0) move(blocks.saved_b, blocks.host_b, own.saved_b);
  if (slot != 0 && own.saved_w > 0) move(blocks.saved_w, blocks.host_w, own.saved_w);
}

void StageRunner::move_block(Block& from, Block& to, std::int64_t bytes) {
  if (activations_.pool().holds_data()) std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes));
  from.reset();
}

void StageRunner::offload(int stage, int m, int unit, int slot) {
  each_saved(stage, m, unit, slot, [&](Block& saved, Block& host, std::int64_t bytes) {
    FEM_CHECK(saved && !host, "a saved block is offloaded that is not there");
    host = activations_.host_pool().take(bytes);
    move_block(saved, host, bytes);
  });
}

void StageRunner::reload(int stage, int m, int unit, int slot) {
  each_saved(stage, m, unit, slot, [&](Block& saved, Block& host, std::int64_t bytes) {
    FEM_CHECK(host && !saved, "a saved block is reloaded that was not offloaded");
    saved = activations_.pool().take(bytes, ir::Lane::Copy);
    move_block(host, saved, bytes);
  });
}

void StageRunner::backward_input(int stage, int m, int unit) {
  Local& here = local(stage);
  LocalUnit& own = here.units[static_cast<std::size_t>(unit)];
  const std::int64_t index = activations_.index(stage, m);
  UnitBlocks& blocks = activations_.unit(index, static_cast<std::size_t>(unit));
  const bool last = unit + 1 == units(stage), embedding = here.first && unit == 0, head = here.last && last;
  BlockPool& pool = activations_.pool();

  if (!head && last) blocks.grad_output = activations_.take_gradient(index);
  FEM_CHECK(head || blocks.grad_output, "the gradient of the output is read before it is written");
  FEM_CHECK((blocks.saved_b || own.saved_b == 0) && (blocks.saved_w || own.saved_w == 0),
            "the saved tensors are read before they are written");
  blocks.work = pool.take(own.work);
  Block dx = embedding ? Block() : activations_.activation();
  own.run->backward_input({.x = blocks.input.data(), .saved_b = blocks.saved_b.data(), .saved_w = blocks.saved_w.data(),
                           .work = blocks.work.data(), .dy = blocks.grad_output.data(), .dx = dx.data(),
                           .workspace = pool.workspace(own.backward_input)},
                          context(m));
  blocks.input.reset();
  blocks.saved_b.reset();
  if (embedding) return;
  if (unit > 0) {
    activations_.unit(index, static_cast<std::size_t>(unit - 1)).grad_output = std::move(dx);
  } else {
    activations_.put_gradient(activations_.index(here.previous, m), std::move(dx));
  }
}

void StageRunner::backward_weight(int stage, int m, int unit) {
  LocalUnit& own = local(stage).units[static_cast<std::size_t>(unit)];
  UnitBlocks& blocks = activations_.unit(activations_.index(stage, m), static_cast<std::size_t>(unit));
  FEM_CHECK((blocks.work || own.work == 0) && (blocks.saved_w || own.saved_w == 0),
            "the weight work is read before it is written");
  FEM_CHECK(own.run->kind() == ir::UnitKind::head || blocks.grad_output,
            "the gradient of the output is read before it is written");
  own.run->backward_weight({.saved_w = blocks.saved_w.data(), .work = blocks.work.data(),
                            .dy = blocks.grad_output.data(),
                            .workspace = activations_.pool().workspace(own.backward_weight)},
                           context(m));
  blocks.saved_w.reset();
  blocks.work.reset();
  blocks.grad_output.reset();
}

}  // namespace fem::exec
