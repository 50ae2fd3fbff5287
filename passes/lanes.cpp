// Which lane runs each action, and the waits between lanes.
#include "ir/lane_waits.hpp"
#include "passes/pass.hpp"

namespace fem::passes {

bool run_lanes(ir::Plan& plan, const PassOptions&, ir::DiagnosticSink&) {
  plan.level = ir::Level::Lane;
  for (std::size_t p = 0; p < plan.programs.size(); ++p) {
    for (ir::RankProgram& rank : plan.programs[p].ranks) {
      for (ir::Action& action : rank.actions) action.lane = ir::info(action.kind).lane;
    }
    ir::set_fewest_waits(plan, p);
  }
  return true;
}

}  // namespace fem::passes
