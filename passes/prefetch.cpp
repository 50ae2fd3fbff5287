// Gathers ahead of their use: while one unit computes, the next ones' parameters are on their way.
#include <algorithm>
#include <string>
#include <vector>

#include "ir/bytes.hpp"
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

void move_unshards(std::vector<Action>& actions, const std::vector<Gather>& gathers,
                   const std::vector<std::size_t>& at) {
  std::vector<Action> out;
  out.reserve(actions.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    for (; next < gathers.size() && at[next] == i; ++next) out.push_back(actions[gathers[next].unshard]);
    if (actions[i].kind != ActionKind::Unshard) out.push_back(actions[i]);
  }
  actions = std::move(out);
}

}  // namespace

void prefetch_rank(const ir::Plan& plan, std::vector<Action>& actions, std::int64_t distance, std::int64_t budget) {
  const std::vector<Gather> gathers = gathers_of(plan, actions);
  move_unshards(actions, gathers, places(gathers, static_cast<std::size_t>(distance), budget));
}

bool run_prefetch(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink& sink) {
  const std::string& budget_text = options.text("budget");
  const std::optional<std::int64_t> budget = budget_text.empty() ? 0 : ir::parse_bytes(budget_text);
  if (!budget) {
    sink.error({}, "prefetch: budget '" + budget_text + "' is not a number of bytes, as 2GiB or 512MB");
    return false;
  }
  if (plan.settings.parallel.zero < 3) return true;  // parameters stay: nothing is gathered before its use
  for (ir::Program& program : plan.programs) {
    for (ir::RankProgram& rank : program.ranks)
      prefetch_rank(plan, rank.actions, options.integer("distance"), *budget);
  }
  return true;
}

}  // namespace fem::passes
