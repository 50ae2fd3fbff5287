#include "passes/unit_uses.hpp"

#include <algorithm>
#include <numeric>

#include "ir/unit_sizes.hpp"

namespace fem::passes {

using ir::ActionKind;

UnitUses::UnitUses(const ir::Plan& plan, std::span<const ir::Action> actions) : plan_(plan) {
  for (const ir::Stage& stage : plan.stages) {
    first_.push_back(rows_.size());
    for (int u = 0; u < stage.units; ++u) rows_.push_back({.unit = stage.first_unit + u});
  }
  std::size_t before = rows_.size();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const ir::Action& a = actions[i];
    if (a.stage < 0 || a.unit < 0) continue;
    const std::size_t now = row(a.stage, a.unit);
    if (ir::is_weight_backward(a.kind)) rows_[now].last_gradient = i;
    if (!ir::info(a.kind).reads.has(ir::ResourceKind::Params)) continue;
    rows_[now].last_use = i;
    rows_[now].gathers += now != before;
    before = now;
  }
}

std::vector<bool> UnitUses::residents(std::int64_t budget) const {
  const ir::UnitSizeTable sizes = ir::unit_sizes(plan_.settings);
  const auto bytes = [&](std::size_t row) { return ir::sizes_of(sizes, plan_.settings, rows_[row].unit).params; };
  std::vector<std::size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (rows_[a].gathers != rows_[b].gathers) return rows_[a].gathers > rows_[b].gathers;
    return bytes(a) < bytes(b);
  });
  std::vector<bool> kept(rows_.size());
  for (const std::size_t row : order) {
    if (rows_[row].gathers < 2 || bytes(row) > budget) continue;
    kept[row] = true;
    budget -= bytes(row);
  }
  return kept;
}

}  // namespace fem::passes
