#include <string>
#include <utility>
#include <vector>

#include "ir/memory_blocks.hpp"
#include "ir/replicas.hpp"
#include "ir/verify_resources.hpp"

namespace fem::ir::verifying {
namespace {

using enum ResourceKind;

// The resources of one rank and their states while its program is read from top to bottom.
class RankDataflow {
 public:
  RankDataflow(const Subject& subject, std::size_t rank, const UseTable& uses, Report& report)
      : layout_(subject.layout),
        program_(subject.program()),
        program_index_(subject.index),
        rank_(rank),
        // Below level unit, how replicas divide the parameters is not written out yet.
        zero_(subject.plan.level < Level::Unit ? 0 : subject.plan.settings.parallel.zero),
        moments_in_(subject.plan.level >= Level::Unit && offloads_optimizer(subject.plan.settings) ? HostOptimizer
                                                                                                   : Optimizer),
        before_use_(zero_ > 0 && gathers_before_use(subject.plan.settings)),
        resources_(subject, rank),
        uses_(uses),
        report_(report),
        states_(resources_.size()) {
    resources_.each([&](std::int64_t index, const ResourceName& name) {
      if (held_at_start(name.kind)) state(index).held = true;
    });
    state(RankResources::of_rank(Loss)).held = true;
  }

  void run() {
    const std::span<const Action> actions = program_.ranks[rank_].actions;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t n = batch_size(actions, i);
      // The halves of a batch run together: none sees what another defines or frees.
      for (std::size_t k = i; k < i + n; ++k) need(actions[k], k);
      for (std::size_t k = i; k < i + n; ++k) kill(actions[k], k);
      if (actions[i].kind == ActionKind::OptimizerStep && zero_ > 0) outdate(actions[i], i);
      for (std::size_t k = i; k < i + n; ++k) define(actions[k], k);
      i += n;
    }
    leftovers();
  }

 private:
  struct State {
    std::uint32_t by = 0;  // index + 1 of the action that last defined or killed it; 0: none did
    bool held = false;
  };

  // Has its value from step to step. With ZeRO-3 whole parameters are not there, with parallel.gather=forward they are
  // old.
  bool held_at_start(ResourceKind kind) const {
    return kind == Shard || kind == moments_in_ || (kind == Params && zero_ < 3 && !before_use_);
  }
  // May stay at the end: values of the step that the run reports, and what has its memory from step to step.
  bool may_stay(ResourceKind kind) const {
    return held_at_start(kind) || kind == Metrics || kind == Norm || (kind == Params && zero_ < 3);
  }

  State& state(std::int64_t index) { return states_[static_cast<std::size_t>(index)]; }
  const Uses& uses(const Action& a) const { return uses_[static_cast<std::size_t>(a.kind)]; }

  void need(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses(a).needs) {
      bool said = false;  // of the units and blocks that an action concerns, the first speaks for all
      resources_.each(a, kind, [&](std::int64_t index, const ResourceName& name) {
        if (state(index).held) return;
        if (!said) not_held(i, index, name);
        said = true;
        state(index) = {0, true};  // as if it were there: one error for one cause
      });
    }
  }

  void kill(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses(a).kills) {
      resources_.each(a, kind, [&](std::int64_t index, const ResourceName&) {
        state(index) = {static_cast<std::uint32_t>(i + 1), false};
      });
    }
  }

  // The update changes this rank's part alone: what was gathered before it holds old values.
  void outdate(const Action& a, std::size_t i) {
    resources_.each(a, Params, [&](std::int64_t index, const ResourceName& name) {
      if (zero_ == 3 && state(index).held && state(index).by > 0) {
        report_.action(Code::V27, place(i), "updates while " + text(name) + " is gathered by " +
                                                report_.at(place(state(index).by - 1)) +
                                                "; a Reshard must stand before the update");
      }
      state(index) = {static_cast<std::uint32_t>(i + 1), false};
    });
  }

  bool outdated_by_update(const State& found) const {
    return found.by > 0 && actions()[found.by - 1].kind == ActionKind::OptimizerStep;
  }

  void not_after_update(const Action& a, std::size_t i) {
    bool said = false;
    resources_.each(a, Params, [&](std::int64_t index, const ResourceName& name) {
      if (!outdated_by_update(state(index)) || std::exchange(said, true)) return;
      report_.action(Code::V27, place(i),
                     "gathers " + text(name) + " after the update; with parallel.gather=forward the next program "
                                               "gathers it before its first use");
    });
  }

  void define(const Action& a, std::size_t i) {
    if (a.kind == ActionKind::Unshard && before_use_) not_after_update(a, i);
    for (const ResourceKind kind : uses(a).defines) {
      bool said = false;
      resources_.each(a, kind, [&](std::int64_t index, const ResourceName& name) {
        const bool assumed = state(index).by == 0 && !held_at_start(kind);
        if (state(index).held && !assumed && !std::exchange(said, true)) twice(i, index, name);
        state(index) = {static_cast<std::uint32_t>(i + 1), true};
      });
    }
    for (const ResourceKind kind : uses(a).adds) {
      resources_.each(a, kind, [&](std::int64_t index, const ResourceName&) {
        state(index) = {static_cast<std::uint32_t>(i + 1), true};
      });
    }
  }

  std::span<const Action> actions() const { return program_.ranks[rank_].actions; }
  Place place(std::size_t action) const { return {program_index_, rank_, action}; }

  void not_held(std::size_t i, std::int64_t index, const ResourceName& name) {
    const std::string what = text(name);
    const State found = state(index);
    if (found.by == 0 && name.kind == Params && before_use_) {
      return report_.action(Code::V27, place(i), "uses " + what + ", which the update of the step before has outdated; "
                                                 "with parallel.gather=forward an Unshard before it gathers it anew");
    }
    if (outdated_by_update(found) && name.kind == Params) {
      return report_.action(Code::V27, place(i), "uses " + what + ", which " + report_.at(place(found.by - 1)) +
                                                     " has outdated; an Unshard between the two would gather it anew");
    }
    if (found.by > 0) {
      return report_.action(Code::V18, place(i), "uses " + what + ", which " + report_.at(place(found.by - 1)) +
                                                     " has freed: it must stand before that");
    }
    report_.action(Code::V17, place(i),
                   "uses " + what + ", which nothing before it defines; " + definition(i, index, name));
  }

  // Who defines what is missing: an action further down, or the kinds of action that could.
  std::string definition(std::size_t i, std::int64_t index, const ResourceName& name) {
    const std::span<const Action> actions = this->actions();
    // Looked for only while the message is shown: else many errors would make the check quadratic.
    for (std::size_t k = i + 1; k < actions.size() && report_.shows(Code::V17); ++k) {
      bool defines = false;
      for (const ResourceKind other : uses(actions[k]).defines) {
        resources_.each(actions[k], other,
                        [&](std::int64_t defined, const ResourceName&) { defines = defines || defined == index; });
      }
      if (defines) return report_.at(place(k)) + " defines it, but only afterwards";
    }
    // On this rank the tensor between two local stages is defined under its other name.
    const Stage& stage = layout_.stage(name.stage < 0 ? 0 : name.stage);
    const bool first = name.unit < 0 || name.unit == stage.first_unit;
    const bool last = name.unit < 0 || name.unit == stage.first_unit + stage.units - 1;
    if (name.kind == Input && !first) return "Forward of unit " + std::to_string(name.unit - 1) + " would define it";
    if (name.kind == Input && !layout_.receives_input(name.stage)) {
      return "Forward of stage " + std::to_string(stage.prev) + " would define it";
    }
    const std::string backward = "Backward or BackwardInput of ";
    if (name.kind == GradOutput && !last) {
      return backward + "unit " + std::to_string(name.unit + 1) + " would define it";
    }
    if (name.kind == GradOutput && !layout_.sends_output(name.stage)) {
      return backward + "stage " + std::to_string(stage.next) + " would define it";
    }
    return actions_with(&ActionInfo::writes, name.kind) + " would define it";
  }

  void twice(std::size_t i, std::int64_t index, const ResourceName& name) {
    const std::uint32_t by = state(index).by;
    report_.action(Code::V19, place(i), "defines " + text(name) + " again, " +
                                            (by > 0 ? "first defined by " + report_.at(place(by - 1))
                                                    : std::string("which is held from the start")) +
                                            " and not freed since");
  }

  void leftovers() {
    if (state(RankResources::of_rank(Loss)).held) {
      report_.rank(Code::V20, program_index_, rank_,
                   "loss is still held at the end of the program; a ReduceLoss after the last Forward would free it");
    }
    resources_.each([&](std::int64_t index, const ResourceName& name) {
      if (name.kind == Params && held_at_start(Params) && !state(index).held) return outdated(index, name);
      leftover(index, name);
    });
  }

  void outdated(std::int64_t index, const ResourceName& name) {
    const std::uint32_t by = state(index).by;
    report_.action(Code::V27, place(by - 1), "leaves " + text(name) + " without a value at the end of the program; an "
                                                                      "Unshard after it would gather it");
  }

  void leftover(std::int64_t index, const ResourceName& name) {
    if (may_stay(name.kind) || !state(index).held || state(index).by == 0) return;
    const std::uint32_t by = state(index).by;
    state(index).held = false;  // a tensor between two stages of this rank has two names
    if (std::exchange(last_left_, {by, name.kind}) == std::pair(by, name.kind)) return;
    report_.action(Code::V20, place(by - 1), "defines " + text(name) +
                                                 ", which is still held at the end of the program; " +
                                                 actions_with(&ActionInfo::kills, name.kind) + " would free it");
  }

  const Layout& layout_;
  const Program& program_;
  std::size_t program_index_, rank_;
  std::int64_t zero_;        // parallel.zero
  ResourceKind moments_in_;  // between steps: Optimizer or HostOptimizer
  bool before_use_;    // parallel.gather=forward
  RankResources resources_;
  const UseTable& uses_;
  Report& report_;
  std::vector<State> states_;
  std::pair<std::uint32_t, ResourceKind> last_left_{};  // what leftover() said last: it speaks once for a whole stage
};

}  // namespace

void check_dataflow(const Subject& subject, Report& report) {
  const UseTable uses = all_uses();
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) RankDataflow(subject, r, uses, report).run();
}

}  // namespace fem::ir::verifying
