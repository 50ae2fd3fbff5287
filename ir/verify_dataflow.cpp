#include <string>
#include <vector>

#include "ir/verify_resources.hpp"

namespace fem::ir::verifying {
namespace {

using enum ResourceKind;

// May stay at the end: values of the step that the run reports, and what lives from step to step.
bool may_stay(ResourceKind kind) { return is_persistent(kind) || kind == Metrics || kind == Norm; }

// The resources of one rank and their states while its program is read from top to bottom.
class RankDataflow {
 public:
  RankDataflow(const Subject& subject, std::size_t rank, const UseTable& uses, Report& report)
      : layout_(subject.layout),
        program_(subject.program()),
        program_index_(subject.index),
        rank_(rank),
        resources_(subject, rank),
        uses_(uses),
        report_(report),
        states_(resources_.size()) {
    for (const int s : resources_.stages()) {
      for (const ResourceKind kind : RankResources::kOfStage) {
        if (is_persistent(kind)) state(resources_.find(kind, s, -1)).held = true;
      }
    }
    state(resources_.find(Loss, -1, -1)).held = true;
  }

  void run() {
    const std::span<const Action> actions = program_.ranks[rank_].actions;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t n = batch_size(actions, i);
      // The halves of a batch run together: none sees what another defines or frees.
      for (std::size_t k = i; k < i + n; ++k) need(actions[k], k);
      for (std::size_t k = i; k < i + n; ++k) kill(actions[k], k);
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

  State& state(std::int64_t index) { return states_[static_cast<std::size_t>(index)]; }
  const Uses& uses(const Action& a) const { return uses_[static_cast<std::size_t>(a.kind)]; }

  void need(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses(a).needs) {
      resources_.each(a, kind, [&](std::int64_t index, int s) {
        if (!state(index).held) not_held(a, i, kind, index, s);
      });
    }
  }

  void kill(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses(a).kills) {
      resources_.each(a, kind,
                      [&](std::int64_t index, int) { state(index) = {static_cast<std::uint32_t>(i + 1), false}; });
    }
  }

  void define(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses(a).defines) {
      resources_.each(a, kind, [&](std::int64_t index, int s) {
        const bool assumed = state(index).by == 0 && !is_persistent(kind);
        if (state(index).held && !assumed) twice(i, kind, index, s, a.microbatch);
        state(index) = {static_cast<std::uint32_t>(i + 1), true};
      });
    }
  }

  Place place(std::size_t action) const { return {program_index_, rank_, action}; }

  void not_held(const Action& a, std::size_t i, ResourceKind kind, std::int64_t index, int s) {
    const std::string what = RankResources::text(kind, s, a.microbatch);
    const State found = state(index);
    state(index) = {0, true};  // as if it were there: one error for one cause
    if (found.by > 0) {
      return report_.action(Code::V18, place(i), "uses " + what + ", which " + report_.at(place(found.by - 1)) +
                                                     " has freed: it must stand before that");
    }
    report_.action(Code::V17, place(i),
                   "uses " + what + ", which nothing before it defines; " + definition(i, kind, index, s));
  }

  // Who defines what is missing: an action further down, or the kinds of action that could.
  std::string definition(std::size_t i, ResourceKind kind, std::int64_t index, int s) {
    const std::span<const Action> actions = program_.ranks[rank_].actions;
    // Looked for only while the message is shown: else many errors would make the check quadratic.
    for (std::size_t k = i + 1; k < actions.size() && report_.shows(Code::V17); ++k) {
      bool defines = false;
      for (const ResourceKind other : uses(actions[k]).defines) {
        resources_.each(actions[k], other, [&](std::int64_t defined, int) { defines = defines || defined == index; });
      }
      if (defines) return report_.at(place(k)) + " defines it, but only afterwards";
    }
    // On this rank the tensor between two local stages is defined under its other name.
    if (kind == Input && !layout_.receives_input(s)) {
      return "Forward of stage " + std::to_string(layout_.stage(s).prev) + " would define it";
    }
    if (kind == GradOutput && !layout_.sends_output(s)) {
      return "Backward or BackwardInput of stage " + std::to_string(layout_.stage(s).next) + " would define it";
    }
    return actions_with(&ActionInfo::writes, kind) + " would define it";
  }

  void twice(std::size_t i, ResourceKind kind, std::int64_t index, int s, std::int64_t m) {
    const std::uint32_t by = state(index).by;
    report_.action(Code::V19, place(i), "defines " + RankResources::text(kind, s, m) + " again, " +
                                            (by > 0 ? "first defined by " + report_.at(place(by - 1))
                                                    : std::string("which is held from the start")) +
                                            " and not freed since");
  }

  void leftovers() {
    if (state(resources_.find(Loss, -1, -1)).held) {
      report_.rank(Code::V20, program_index_, rank_,
                   "loss is still held at the end of the program; a ReduceLoss after the last Forward would free it");
    }
    for (const int s : resources_.stages()) {
      for (const ResourceKind kind : RankResources::kOfStage) leftover(kind, s, -1);
      for (const ResourceKind kind : RankResources::kOfMicrobatch) {
        for (int m = 0; m < program_.microbatches; ++m) leftover(kind, s, m);
      }
    }
  }

  void leftover(ResourceKind kind, int s, std::int64_t m) {
    if (may_stay(kind)) return;
    const std::int64_t index = resources_.find(kind, s, m);
    if (index == RankResources::kAbsent || !state(index).held || state(index).by == 0) return;
    const std::uint32_t by = state(index).by;
    state(index).held = false;  // a tensor between two stages of this rank has two names
    report_.action(Code::V20, place(by - 1),
                   "defines " + RankResources::text(kind, s, m) + ", which is still held at the end of the program; " +
                       actions_with(&ActionInfo::kills, kind) + " would free it");
  }

  const Layout& layout_;
  const Program& program_;
  std::size_t program_index_, rank_;
  RankResources resources_;
  const UseTable& uses_;
  Report& report_;
  std::vector<State> states_;
};

}  // namespace

void check_dataflow(const Subject& subject, Report& report) {
  const UseTable uses = all_uses();
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) RankDataflow(subject, r, uses, report).run();
}

}  // namespace fem::ir::verifying
