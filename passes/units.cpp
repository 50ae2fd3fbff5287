// From whole stages to their units: what is gathered, reduced, recomputed and freed is a unit's.
#include <utility>
#include <vector>

#include "passes/pass.hpp"
#include "passes/sharding.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

std::vector<Action> expand(std::span<const Action> actions, std::span<const ir::Stage> stages) {
  std::vector<Action> out;
  out.reserve(2 * actions.size());
  for (const Action& a : actions) {
    if (!ir::is_computation(a.kind)) {
      out.push_back(a);
      continue;
    }
    Action one = a;
    one.flags &= static_cast<std::uint8_t>(~Action::kJoined);  // an overlapped pair: one unit after the other
    ir::each_unit(stages[static_cast<std::size_t>(a.stage)], a, [&](int unit) {
      one.unit = static_cast<std::int16_t>(unit);
      out.push_back(one);
    });
  }
  return out;
}

}  // namespace

bool run_units(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  Sharding sharding(plan);
  for (ir::Program& program : plan.programs) {
    for (ir::RankProgram& rank : program.ranks) rank.actions = sharding.rewrite(expand(rank.actions, plan.stages));
  }
  plan.level = ir::Level::Unit;
  return true;
}

}  // namespace fem::passes
