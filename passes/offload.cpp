// Saved tensors wait in host memory for a backward that is far away.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "ir/units.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

constexpr std::size_t kNone = SIZE_MAX;

// One unit and microbatch: where its forward and its first backward stand.
struct Use {
  std::size_t forward = kNone, backward = kNone;  // backward: with what it recomputes
  bool freed[ir::kSavedBlocks] = {};  // recomputed rather than kept
};

class Offload {
 public:
  Offload(const ir::Settings& settings, std::size_t gap, std::size_t ahead)
      : settings_(settings), gap_(gap), ahead_(ahead) {}

  std::vector<Action> rewrite(const std::vector<Action>& actions) {
    find(actions);
    std::vector<std::pair<std::size_t, Action>> inserted;  // before the action of that index
    for (const auto& [key, use] : uses_) {
      if (use.forward == kNone || use.backward == kNone) continue;
      const std::size_t between = before_[use.backward] - before_[use.forward];
      if (between < gap_ || between <= ahead_) continue;
      for (std::int16_t block = 0; block < ir::kSavedBlocks; ++block) {
        if (use.freed[block]) continue;
        Action move = actions[use.forward];
        move.slot = block;
        move.lane = ir::Lane::Copy;
        move.kind = ActionKind::Offload;
        inserted.push_back({use.forward + 1, move});
        move.kind = ActionKind::Reload;
        inserted.push_back({computation_[before_[use.backward] - ahead_], move});
      }
    }
    std::ranges::stable_sort(inserted, {}, &std::pair<std::size_t, Action>::first);
    std::vector<Action> out;
    out.reserve(actions.size() + inserted.size());
    auto next = inserted.begin();
    for (std::size_t i = 0; i < actions.size(); ++i) {
      for (; next != inserted.end() && next->first == i; ++next) out.push_back(next->second);
      out.push_back(actions[i]);
    }
    return out;
  }

 private:
  void find(const std::vector<Action>& actions) {
    uses_.clear();
    before_.clear();
    computation_.clear();
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      before_.push_back(computation_.size());
      if (ir::is_computation(a.kind)) computation_.push_back(i);
      if (a.unit < 0 || a.microbatch < 0 || ir::unit_kind(settings_, a.unit) != ir::UnitKind::block) continue;
      Use& use = uses_[{a.unit, a.microbatch}];
      if (a.kind == ActionKind::Forward) use.forward = i;
      // A recompute of the cheap tensors reads the others.
      const bool uses = ir::is_input_backward(a.kind) || a.kind == ActionKind::Recompute;
      if (uses && use.backward == kNone) use.backward = i;
      if (a.kind != ActionKind::Free) continue;
      for (std::int16_t block = 0; block < ir::kSavedBlocks; ++block)
        use.freed[block] = use.freed[block] || a.slot < 0 || a.slot == block;
    }
  }

  const ir::Settings& settings_;
  std::size_t gap_, ahead_;
  std::map<std::pair<std::int16_t, std::int32_t>, Use> uses_;  // by unit and microbatch
  std::vector<std::size_t> before_;       // by action: computations before it
  std::vector<std::size_t> computation_;  // by number: its action
};

}  // namespace

bool run_offload(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink&) {
  Offload offload(plan.settings, static_cast<std::size_t>(options.integer("gap")),
                  static_cast<std::size_t>(options.integer("ahead")));
  for (ir::Program& program : plan.programs) {
    if (program.forward_only) continue;
    for (ir::RankProgram& rank : program.ranks) rank.actions = offload.rewrite(rank.actions);
  }
  return true;
}

}  // namespace fem::passes
