// Frees what the forward of a block saved at once and runs the forward again before the backward.
#include <algorithm>
#include <vector>

#include "ir/units.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

constexpr std::int16_t kAllBlocks = -1, kCheapBlock = 1;  // saved blocks of units.hpp

// Which blocks of the model are recomputed, and what of them.
struct Choice {
  bool none = true;
  std::int16_t slot = kAllBlocks;
  std::int64_t every = 1, first = 0, last = 0;  // of the model's blocks

  bool takes(std::int64_t block) const {
    return !none && block >= first && block <= last && (block - first) % every == 0;
  }
};

Choice choose(const PassOptions& options, std::int64_t blocks) {
  Choice choice;
  const std::string& mode = options.text("mode");
  choice.none = mode == "none";
  if (mode == "selective") choice.slot = kCheapBlock;
  choice.every = options.integer("every");
  choice.first = options.integer("first");
  choice.last = options.integer("last") < 0 ? blocks - 1 : options.integer("last");
  return choice;
}

bool starts_backward(ActionKind kind) { return kind == ActionKind::Backward || kind == ActionKind::BackwardInput; }

std::vector<Action> rewrite(std::span<const Action> actions, const ir::Settings& settings, const Choice& choice) {
  std::vector<Action> out;
  out.reserve(actions.size() + actions.size() / 2);
  for (const Action& a : actions) {
    const bool chosen = a.unit >= 0 && (a.kind == ActionKind::Forward || starts_backward(a.kind)) &&
                        ir::unit_kind(settings, a.unit) == ir::UnitKind::block &&
                        choice.takes(ir::unit_layer(a.unit));
    if (chosen && starts_backward(a.kind)) {
      Action recompute = a;
      recompute.kind = ActionKind::Recompute;
      recompute.slot = choice.slot;
      out.push_back(recompute);
    }
    out.push_back(a);
    if (chosen && a.kind == ActionKind::Forward) {
      Action free = a;
      free.kind = ActionKind::Free;
      free.slot = choice.slot;
      out.push_back(free);
    }
  }
  return out;
}

}  // namespace

bool run_recompute(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink& sink) {
  const std::int64_t blocks = plan.settings.model.layers;
  const Choice choice = choose(options, blocks);
  if (!choice.none && (choice.first > choice.last || choice.last >= blocks)) {
    sink.error({}, "recompute: blocks " + std::to_string(choice.first) + " to " + std::to_string(choice.last) +
                       " of a model with blocks 0 to " + std::to_string(blocks - 1));
    return false;
  }
  if (choice.none) return true;
  for (ir::Program& program : plan.programs) {
    if (program.forward_only) continue;
    for (ir::RankProgram& rank : program.ranks) rank.actions = rewrite(rank.actions, plan.settings, choice);
  }
  return true;
}

}  // namespace fem::passes
