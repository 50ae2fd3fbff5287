#include "compiler/programs.hpp"

#include <algorithm>

#include "ir/builder.hpp"

namespace fem::compiler {
namespace {

using ir::Action;

Action op_action(const Op& op) {
  switch (op.kind) {
    case OpKind::F:
      return ir::forward(op.stage, op.microbatch);
    case OpKind::B:
      return ir::backward(op.stage, op.microbatch);
    case OpKind::I:
      return ir::backward_input(op.stage, op.microbatch);
    case OpKind::W:
      return ir::backward_weight(op.stage, op.microbatch);
  }
  return {};
}

std::vector<int> stages_of(const Placement& placement, int rank) {
  std::vector<int> stages;
  for (int slot = 0; slot < placement.slots(); ++slot) stages.push_back(placement.stage(rank, slot));
  std::ranges::sort(stages);
  return stages;
}

// Stages of a rank that another holds for the other direction, in an order that is the same on both: that of the model.
std::vector<int> shared_stages(const Placement& placement, int rank) {
  if (placement.kind != PlacementKind::Bidirectional) return {};
  std::vector<int> stages = stages_of(placement, rank);
  std::ranges::sort(stages, {}, [&](int s) { return placement.part(s); });
  return stages;
}

// Forwards of two directions in the order in which they can run at unit cost: a microbatch reaches a rank one slot for
// each stage after it has left.
std::vector<Action> two_way_forwards(const Placement& placement, int rank, std::int64_t m) {
  struct Entry {
    std::int64_t time;
    int stage;
    std::int64_t microbatch;
    auto operator<=>(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  for (int slot = 0; slot < placement.slots(); ++slot) {
    const int stage = placement.stage(rank, slot);
    const std::int64_t first = placement.first_microbatch(slot, m);
    for (std::int64_t i = 0; i < placement.microbatches(slot, m); ++i) {
      entries.push_back({placement.part(stage) + i, stage, first + i});
    }
  }
  std::ranges::sort(entries);
  std::vector<Action> actions;
  for (const Entry& entry : entries) actions.push_back(ir::forward(entry.stage, static_cast<int>(entry.microbatch)));
  return actions;
}

std::vector<Action> chunked_forwards(const Placement& placement, int rank, std::int64_t m) {
  std::vector<Action> actions;
  for (std::int64_t first = 0; first < m; first += placement.p) {
    const std::int64_t end = std::min<std::int64_t>(m, first + placement.p);
    for (int slot = 0; slot < placement.slots(); ++slot) {
      for (std::int64_t i = first; i < end; ++i) {
        actions.push_back(ir::forward(placement.stage(rank, slot), static_cast<int>(i)));
      }
    }
  }
  return actions;
}

}  // namespace

std::vector<ir::Stage> make_stages(const Placement& placement, std::span<const std::int64_t> blocks) {
  std::vector<std::int64_t> first_unit;
  std::int64_t unit = 0;
  for (std::size_t part = 0; part < blocks.size(); ++part) {
    first_unit.push_back(unit);
    unit += blocks[part] + (part == 0);
  }
  first_unit.push_back(unit + 1);  // and the head

  std::vector<ir::Stage> stages;
  for (int s = 0; s < placement.stages(); ++s) {
    const auto part = static_cast<std::size_t>(placement.part(s));
    ir::Stage stage;
    stage.pp = static_cast<std::int16_t>(placement.rank(s));
    stage.prev = static_cast<std::int16_t>(placement.previous(s));
    stage.next = static_cast<std::int16_t>(placement.next(s));
    stage.replica_of = static_cast<std::int16_t>(placement.part(s) == s ? -1 : placement.part(s));
    stage.first_unit = static_cast<std::int16_t>(first_unit[part]);
    stage.units = static_cast<std::int16_t>(first_unit[part + 1] - first_unit[part]);
    stages.push_back(stage);
  }
  return stages;
}

ir::Program train_program(const Order& order, const Placement& placement, std::int64_t m, bool tied) {
  ir::Program program{"train", false, static_cast<std::int32_t>(m), {}};
  for (int rank = 0; rank < placement.p; ++rank) {
    const RankOrder& ops = order[static_cast<std::size_t>(rank)];
    const std::vector<int> stages = stages_of(placement, rank);
    std::vector<Action> actions;
    actions.reserve(ops.size() + 4 * stages.size() + 4);
    for (int s : stages) actions.push_back(ir::zero_grad(s));
    for (const Op& op : ops) {
      actions.push_back(op_action(op));
      if (op.joined) actions.back().flags |= Action::kJoined;
    }
    actions.push_back(ir::reduce_loss());
    for (int s : shared_stages(placement, rank)) actions.push_back(ir::reduce_replica_grad(s));
    for (int s : stages) {
      // One for each copy: a stage that is both first and last holds both.
      if (tied && placement.previous(s) < 0) actions.push_back(ir::reduce_tied_grad(s));
      if (tied && placement.next(s) < 0) actions.push_back(ir::reduce_tied_grad(s));
    }
    for (int s : stages) actions.push_back(ir::all_reduce(s));
    actions.push_back(ir::grad_norm());
    for (int s : stages) actions.push_back(ir::clip_grad(s));
    for (int s : stages) actions.push_back(ir::optimizer_step(s));
    program.ranks.push_back({std::move(actions), {}});
  }
  return program;
}

ir::Program eval_program(const Placement& placement, std::int64_t m) {
  ir::Program program{"eval", true, static_cast<std::int32_t>(m), {}};
  for (int rank = 0; rank < placement.p; ++rank) {
    const bool two_ways = placement.kind == PlacementKind::Bidirectional;
    std::vector<Action> actions =
        two_ways ? two_way_forwards(placement, rank, m) : chunked_forwards(placement, rank, m);
    actions.push_back(ir::reduce_loss());
    program.ranks.push_back({std::move(actions), {}});
  }
  return program;
}

}  // namespace fem::compiler
