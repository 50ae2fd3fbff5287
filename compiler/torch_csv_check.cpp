#include "compiler/torch_csv_check.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/schedule.hpp"

namespace fem::compiler {
namespace {

std::optional<Placement> placement_of(const TorchFile& file, const TorchShape& shape) {
  const int p = static_cast<int>(file.rows.size());
  if (shape.stages() % p != 0 || shape.stages() / p > kMaxChunks) return std::nullopt;
  for (const PlacementKind kind : {PlacementKind::Loop, PlacementKind::V}) {
    const Placement placement{kind, p, shape.stages() / p};
    if (kind == PlacementKind::V && placement.v != 2) continue;
    bool same = true;
    for (int s = 0; s < shape.stages(); ++s) same &= placement.rank(s) == shape.rank[static_cast<std::size_t>(s)];
    if (same) return placement;
  }
  return std::nullopt;
}

}  // namespace

std::string ranks_text(const TorchShape& shape) { return fmt::format("{}", fmt::join(shape.rank, " ")); }

void check_torch_stages(const TorchFile& file, TorchShape& shape, TorchFaults& faults) {
  for (const bool passes : {true, false}) {  // the passes say where a stage lies
    for (std::size_t r = 0; r < file.rows.size(); ++r) {
      const TorchRow& row = file.rows[r];
      for (const TorchCell& cell : row.cells) {
        if (is_pass(cell.kind) != passes) continue;
        const auto stage = static_cast<std::size_t>(cell.stage);
        if (passes && stage >= shape.rank.size()) shape.rank.resize(stage + 1, -1);
        const int rank = stage < shape.rank.size() ? shape.rank[stage] : -1;
        if (passes && rank < 0) {
          shape.rank[stage] = static_cast<int>(r);
        } else if (rank < 0) {
          faults.cell(r, row.line, cell, fmt::format("no rank runs stage {} forward or backward", stage));
        } else if (rank != static_cast<int>(r)) {
          faults.cell(r, row.line, cell,
                      fmt::format("stage {} runs on rank {} and on rank {}: a stage lies on one rank (schedules of two "
                                  "directions, with two replicas of the stages, cannot be written in this format)",
                                  stage, rank, r));
          if (passes) return;  // one of many of the same kind
        }
      }
    }
  }
  for (std::size_t s = 0; s < shape.rank.size(); ++s) {
    if (shape.rank[s] < 0) {
      faults.file(fmt::format("no rank runs stage {}, although there is a stage {}: stages count from 0 without a gap",
                              s, shape.rank.size() - 1));
    }
  }
  if (shape.rank.empty()) faults.file("no rank runs a stage forward or backward");
}

namespace {

// What the data-parallel cells of one stage have done so far.
struct ShardState {
  bool managed = false;  // there are UNSHARD or RESHARD cells
  bool whole = false;    // its parameters are there
  const TorchCell* reduced = nullptr;
};

std::string shard_fault(ShardState& state, const TorchCell& cell) {
  switch (cell.kind) {
    case CellKind::Unshard:
      if (state.whole) return fmt::format("unshards stage {} a second time without a RESHARD between", cell.stage);
      state.whole = true;
      return {};
    case CellKind::Reshard:
      if (!state.whole) return fmt::format("reshards stage {}, which is not unsharded here", cell.stage);
      state.whole = false;
      return {};
    case CellKind::ReduceGrad:
      if (state.reduced) {
        return fmt::format("reduces the gradients of stage {} a second time: first in cell {}", cell.stage,
                           state.reduced->cell);
      }
      state.reduced = &cell;
      return {};
    case CellKind::F:
    case CellKind::B:
    case CellKind::I:
    case CellKind::W:
      if (state.managed && !state.whole) return fmt::format("computes while stage {} is not unsharded", cell.stage);
      if (state.reduced && cell.kind != CellKind::F) {
        return fmt::format("comes after the REDUCE_GRAD of stage {} in cell {}: its gradient would not be reduced",
                           cell.stage, state.reduced->cell);
      }
      return {};
    case CellKind::SendF:
    case CellKind::RecvF:
    case CellKind::SendB:
    case CellKind::RecvB:
      return {};
  }
  return {};
}

}  // namespace

void check_torch_shards(const TorchFile& file, const TorchShape& shape, TorchFaults& faults) {
  std::vector<ShardState> states(shape.rank.size());
  for (const TorchRow& row : file.rows) {
    for (const TorchCell& cell : row.cells) {
      if (cell.kind == CellKind::Unshard || cell.kind == CellKind::Reshard) {
        states[static_cast<std::size_t>(cell.stage)].managed = true;
      }
    }
  }
  for (std::size_t r = 0; r < file.rows.size(); ++r) {
    for (const TorchCell& cell : file.rows[r].cells) {
      const std::string fault = shard_fault(states[static_cast<std::size_t>(cell.stage)], cell);
      if (!fault.empty()) faults.cell(r, file.rows[r].line, cell, fault);
    }
  }
}

std::optional<TorchShape> check_torch_csv(const TorchFile& file, ir::DiagnosticSink& sink) {
  TorchFaults faults(*file.source, sink);
  TorchShape shape;
  check_torch_stages(file, shape, faults);
  if (faults.count() == 0) check_torch_operations(file, shape, faults);
  if (faults.count() == 0) check_torch_shards(file, shape, faults);
  if (faults.count() == 0 && file.communication) check_torch_channels(file, shape, faults);
  if (faults.count() == 0) check_torch_progress(file, shape, faults);
  faults.finish();
  if (faults.count() > 0) return std::nullopt;
  shape.placement = placement_of(file, shape);
  return shape;
}

}  // namespace fem::compiler
