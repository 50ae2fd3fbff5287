// Ahead of their use: while one unit computes, the next ones' parameters are on their way; while one is updated, the
// next ones' moments.
#include <algorithm>
#include <string>
#include <vector>

#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/unit_sizes.hpp"
#include "passes/overlap_rank.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

// From an Unshard to its Reshard.
struct Gather {
  std::size_t unshard, reshard;  // indices of actions
  int stage, unit;
  std::int64_t bytes;  // that count towards the budget: none where it stays while others come (parallel.resident)
};

std::vector<Gather> gathers_of(const ir::Plan& plan, std::span<const Action> actions) {
  const ir::UnitSizeTable sizes = ir::unit_sizes(plan.settings);
  std::vector<Gather> gathers;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    if (a.kind == ActionKind::Unshard) {
      gathers.push_back({i, i, a.stage, a.unit, ir::sizes_of(sizes, plan.settings, a.unit).params});
    } else if (a.kind == ActionKind::Reshard) {
      for (std::size_t g = gathers.size(); g-- > 0;) {
        if (gathers[g].stage != a.stage || gathers[g].unit != a.unit) continue;
        gathers[g].reshard = i;
        break;
      }
    }
  }
  // Units that do not stay are gathered one at a time so far.
  for (std::size_t g = 0; g + 1 < gathers.size(); ++g) {
    if (gathers[g + 1].unshard < gathers[g].reshard) gathers[g].bytes = 0;
  }
  return gathers;
}

// Where each Unshard goes: before the action of that index. A gather starts with the one `distance` gathers before it,
// but not while its unit's parameters are still there from an earlier one, nor while the gathers from there on would
// hold more than the budget.
std::vector<std::size_t> places(const std::vector<Gather>& gathers, std::size_t distance, std::int64_t budget) {
  std::vector<std::size_t> at(gathers.size());
  for (std::size_t g = 0; g < gathers.size(); ++g) {
    std::size_t first = g;
    std::int64_t held = gathers[g].bytes;
    while (first > 0 && g - first < distance) {
      const Gather& before = gathers[first - 1];
      held += before.bytes;
      if (before.unit == gathers[g].unit || (budget > 0 && held > budget)) break;
      --first;
    }
    at[g] = gathers[first].unshard;
    if (g > 0) at[g] = std::max(at[g], at[g - 1]);  // gathers keep their order
  }
  return at;
}

// An action, and before which it goes; both indices of actions.
struct Move {
  std::size_t from, to;
};

// `moves`: all actions of that kind, `to` at most `from` and not falling.
void move_up(std::vector<Action>& actions, ActionKind kind, std::span<const Move> moves) {
  std::vector<Action> out;
  out.reserve(actions.size());
  auto next = moves.begin();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    for (; next != moves.end() && next->to == i; ++next) out.push_back(actions[next->from]);
    if (actions[i].kind != kind) out.push_back(actions[i]);
  }
  actions = std::move(out);
}

void gather_ahead(const ir::Plan& plan, std::vector<Action>& actions, std::size_t distance, std::int64_t budget) {
  const std::vector<Gather> gathers = gathers_of(plan, actions);
  const std::vector<std::size_t> at = places(gathers, distance, budget);
  std::vector<Move> moves;
  for (std::size_t g = 0; g < gathers.size(); ++g) moves.push_back({gathers[g].unshard, at[g]});
  move_up(actions, ActionKind::Unshard, moves);
}

// Each reload starts with the one `distance` reloads before it; the first ones when the last computation is over,
// beside the reductions.
void reload_ahead(std::vector<Action>& actions, std::size_t distance) {
  std::vector<Move> moves;
  std::size_t after_computation = 0;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (ir::is_computation(actions[i].kind)) after_computation = i + 1;
    if (actions[i].kind != ActionKind::ReloadOptimizer) continue;
    const std::size_t n = moves.size();
    moves.push_back({i, distance == 0 ? i : n < distance ? after_computation : moves[n - distance].from});
  }
  move_up(actions, ActionKind::ReloadOptimizer, moves);
}

}  // namespace

void prefetch_rank(const ir::Plan& plan, std::vector<Action>& actions, std::int64_t distance, std::int64_t budget) {
  const auto ahead = static_cast<std::size_t>(distance);
  // Below zero 3 parameters stay: nothing is gathered before its use.
  if (plan.settings.parallel.zero == 3) gather_ahead(plan, actions, ahead, budget);
  if (ir::offloads_optimizer(plan.settings)) reload_ahead(actions, ahead);
}

bool run_prefetch(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink& sink) {
  const std::string& budget_text = options.text("budget");
  const std::optional<std::int64_t> budget = budget_text.empty() ? 0 : ir::parse_bytes(budget_text);
  if (!budget) {
    sink.error({}, "prefetch: budget '" + budget_text + "' is not a number of bytes, as 2GiB or 512MB");
    return false;
  }
  for (ir::Program& program : plan.programs) {
    for (ir::RankProgram& rank : program.ranks)
      prefetch_rank(plan, rank.actions, options.integer("distance"), *budget);
  }
  return true;
}

}  // namespace fem::passes
