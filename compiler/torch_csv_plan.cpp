#include "compiler/torch_csv_plan.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/division.hpp"
#include "compiler/programs.hpp"
#include "compiler/sizes.hpp"
#include "compiler/support.hpp"
#include "ir/builder.hpp"
#include "ir/verify.hpp"
#include "passes/communication.hpp"
#include "passes/manager.hpp"

namespace fem::compiler {
namespace {

using ir::Action;

std::optional<OpKind> op_of(CellKind kind) {
  switch (kind) {
    case CellKind::F:
      return OpKind::F;
    case CellKind::B:
      return OpKind::B;
    case CellKind::I:
      return OpKind::I;
    case CellKind::W:
      return OpKind::W;
    case CellKind::SendF:
    case CellKind::RecvF:
    case CellKind::SendB:
    case CellKind::RecvB:
    case CellKind::Unshard:
    case CellKind::Reshard:
    case CellKind::ReduceGrad:
      return std::nullopt;
  }
  return std::nullopt;
}

Order order_of(const TorchFile& file) {
  Order order;
  for (const TorchRow& row : file.rows) {
    RankOrder& ops = order.emplace_back();
    for (const TorchCell& cell : row.cells) {
      if (const auto kind = op_of(cell.kind)) ops.push_back({*kind, cell.joined, cell.stage, cell.microbatch});
    }
  }
  return order;
}

// What the configuration says beside what the file says.
bool check_agreement(const TorchFile& file, const TorchShape& shape, const Configuration& configuration,
                     ir::DiagnosticSink& sink) {
  const int errors = sink.errors();
  const ir::Settings& settings = configuration.settings();
  const std::string& name = file.source->file();
  const auto p = static_cast<std::int64_t>(file.rows.size());
  if (settings.parallel.pp != p) {
    configuration.error(sink, {"parallel.pp"},
                        fmt::format("parallel.pp={}, but {} has {} row{}, one for each pipeline rank",
                                    settings.parallel.pp, name, p, p == 1 ? "" : "s"));
  }
  const std::int64_t m = ir::microbatches(settings);
  if (m != shape.microbatches) {
    const std::int64_t unit = settings.parallel.dp * settings.batch.micro;
    configuration.error(sink, {"batch.global", "batch.micro", "parallel.dp"},
                        fmt::format("batch.global={} makes {} microbatches (dp={}, micro={}), but {} has {}; "
                                    "batch.global={} would fit",
                                    settings.batch.global, m, settings.parallel.dp, settings.batch.micro, name,
                                    shape.microbatches, shape.microbatches * unit));
  }
  const std::int64_t v = shape.stages() / p;
  if (settings.schedule.chunks != 0 && settings.schedule.chunks != v) {
    configuration.error(sink, {"schedule.chunks"},
                        fmt::format("schedule.chunks={}, but {} has {} stages on {} ranks, {} each",
                                    settings.schedule.chunks, name, shape.stages(), p, v));
  }
  return sink.errors() == errors;
}

std::optional<Placement> placement_of(const TorchFile& file, const TorchShape& shape, ir::DiagnosticSink& sink) {
  if (shape.placement) return shape.placement;
  const int p = static_cast<int>(file.rows.size());
  std::vector<std::string> known;
  for (const PlacementKind kind : {PlacementKind::Loop, PlacementKind::V}) {
    const Placement placement{kind, p, kind == PlacementKind::V ? 2 : std::max(1, shape.stages() / p)};
    std::vector<int> ranks;
    for (int s = 0; s < placement.stages(); ++s) ranks.push_back(placement.rank(s));
    known.push_back(fmt::format("{} ({})", name(kind), fmt::join(ranks, " ")));
  }
  sink.error({file.source->file(), 0, 0}, fmt::format("the stages lie on ranks {}: a plan places them as a {}",
                                                      ranks_text(shape), fmt::join(known, " or as a ")));
  return std::nullopt;
}

bool is_schedule(const Action& action) {
  using enum ir::ActionKind;
  return action.kind == Forward || action.kind == Backward || action.kind == BackwardInput ||
         action.kind == BackwardWeight;
}

// The action of a cell, or nothing for those that the plan has no use for.
std::optional<Action> action_of(const TorchCell& cell, const TorchShape& shape) {
  const auto rank = [&](int stage) { return shape.rank[static_cast<std::size_t>(stage)]; };
  const int s = cell.stage, m = cell.microbatch;
  switch (cell.kind) {
    case CellKind::F:
      return ir::forward(s, m);
    case CellKind::B:
      return ir::backward(s, m);
    case CellKind::I:
      return ir::backward_input(s, m);
    case CellKind::W:
      return ir::backward_weight(s, m);
    case CellKind::SendF:
      return ir::send_forward(s, m, rank(s + 1));
    case CellKind::RecvF:
      return ir::recv_forward(s, m, rank(s - 1));
    case CellKind::SendB:
      return ir::send_backward(s, m, rank(s - 1));
    case CellKind::RecvB:
      return ir::recv_backward(s, m, rank(s + 1));
    case CellKind::Unshard:
    case CellKind::Reshard:
    case CellKind::ReduceGrad:
      return std::nullopt;
  }
  return std::nullopt;
}

// Replaces the schedule's part of the train program by the file's cells, and lowers the other programs. `locations`
// receives where the cells stand.
bool keep_communication(const TorchFile& file, const TorchShape& shape, ir::Plan& plan, ir::PlanLocations& locations,
                        ir::DiagnosticSink& sink) {
  locations.section_line.assign(ir::setting_sections().size(), 0);
  locations.stage_line.assign(plan.stages.size(), 0);
  for (ir::Program& program : plan.programs) {
    const bool kept = program.name == "train";
    if (!kept && !passes::lower_communication(plan.stages, program, sink)) return false;
    locations.program_line.push_back(0);
    auto& lines = locations.action.emplace_back();
    auto& rank_lines = locations.rank_line.emplace_back();
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      std::vector<Action>& actions = program.ranks[r].actions;
      rank_lines.push_back(kept ? file.rows[r].line : 0);
      if (kept) {
        const auto begin = std::ranges::find_if(actions, is_schedule);
        const auto end = std::find_if(actions.rbegin(), actions.rend(), is_schedule).base();
        std::vector<Action> result(actions.begin(), begin);
        std::vector<ir::ActionLine> places(result.size());
        for (const TorchCell& cell : file.rows[r].cells) {
          auto action = action_of(cell, shape);
          if (!action) continue;
          if (cell.joined) action->flags |= Action::kJoined;
          result.push_back(*action);
          places.push_back({file.rows[r].line, cell.column});
        }
        result.insert(result.end(), end, actions.end());
        places.resize(result.size());
        actions = std::move(result);
        lines.push_back(std::move(places));
      } else {
        lines.emplace_back(actions.size());
      }
    }
  }
  plan.level = ir::Level::Communication;
  return true;
}

void say_what_is_left_out(const TorchFile& file, ImportOptions options, ir::DiagnosticSink& sink) {
  std::array<std::size_t, kCellKinds> counts{};
  for (const TorchRow& row : file.rows) {
    for (const TorchCell& cell : row.cells) ++counts[static_cast<std::size_t>(cell.kind)];
  }
  const auto count = [&](CellKind kind) { return counts[static_cast<std::size_t>(kind)]; };
  if (file.older_dialect) {
    sink.note({file.source->file(), 0, 0}, "read in the older dialect: B is the input gradient, BW the whole backward");
  }
  const std::size_t tail = count(CellKind::Unshard) + count(CellKind::Reshard) + count(CellKind::ReduceGrad);
  if (tail > 0) {
    sink.note({file.source->file(), 0, 0},
              fmt::format("{} UNSHARD, RESHARD and REDUCE_GRAD cells are left out: the plan gathers and reduces at the "
                          "places of its own step",
                          tail));
  }
  if (file.communication && !options.keep_communication) {
    sink.note({file.source->file(), 0, 0},
              "the file's sends and receives are sound; they are placed anew (--keep-communication keeps them)");
  }
}

std::optional<ir::Plan> stage_level_plan(const TorchFile& file, const TorchShape& shape,
                                         const Configuration& configuration, ir::DiagnosticSink& sink) {
  if (!check_sizes(configuration, sink) || !check_agreement(file, shape, configuration, sink)) return std::nullopt;
  const auto placement = placement_of(file, shape, sink);
  if (!placement) return std::nullopt;
  if (!check_support(configuration, placement->kind, sink)) return std::nullopt;
  const auto blocks = divide_model(configuration, *placement, sink);
  if (!blocks) return std::nullopt;

  ir::Plan plan;
  plan.settings = configuration.settings();
  plan.settings.schedule = {};
  plan.settings.schedule.name = std::filesystem::path(file.source->file()).filename().string();
  plan.settings.schedule.chunks = placement->v;
  plan.stages = make_stages(*placement, *blocks);
  plan.programs.push_back(train_program(order_of(file), *placement, shape.microbatches, plan.settings.model.tied));
  if (!plan.settings.data.eval.empty()) plan.programs.push_back(eval_program(*placement, shape.microbatches));
  return plan;
}

}  // namespace

std::optional<ir::Plan> plan_of_torch_csv(const TorchFile& file, const TorchShape& shape,
                                          const Configuration& configuration, ImportOptions options,
                                          ir::DiagnosticSink& sink) {
  auto plan = stage_level_plan(file, shape, configuration, sink);
  if (!plan) return std::nullopt;
  say_what_is_left_out(file, options, sink);
  if (options.keep_communication) {
    if (!file.communication && file.rows.size() > 1) {
      sink.error({file.source->file(), 0, 0}, "--keep-communication: the file has no SEND and RECV cells");
      return std::nullopt;
    }
    ir::PlanLocations locations;
    if (!keep_communication(file, shape, *plan, locations, sink)) return std::nullopt;
    if (ir::verify(*plan, sink, {file.source.get(), &locations})) return plan;
    sink.note({file.source->file(), 0, 0},
              "a plan's sends wait for their receives; without --keep-communication both are placed anew");
    return std::nullopt;
  }
  const ir::SourceText text("passes", passes::default_pipeline(plan->settings));
  const auto pipeline = passes::parse_pipeline(text, sink);
  if (!pipeline || !passes::run_pipeline(*pipeline, *plan, sink)) return std::nullopt;
  return plan;
}

}  // namespace fem::compiler
