#include <array>
#include <string>
#include <vector>

#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

using enum ResourceKind;

constexpr std::array kOfMicrobatch{Input, Output, GradOutput, GradInput, Saved, WeightWork, HostCopy};
constexpr std::array kOfStage{Params, Shard, Grads, ReducedGrads, Optimizer};
constexpr std::array kOfRank{Loss, Metrics, Norm};

template <std::size_t n>
constexpr int position(const std::array<ResourceKind, n>& kinds, ResourceKind kind) {
  for (std::size_t i = 0; i < n; ++i) {
    if (kinds[i] == kind) return static_cast<int>(i);
  }
  return -1;
}

std::string_view resource_name(ResourceKind kind) {
  switch (kind) {
    case Input: return "input";
    case Output: return "output";
    case GradOutput: return "grad_output";
    case GradInput: return "grad_input";
    case Saved: return "saved";
    case WeightWork: return "weight_work";
    case HostCopy: return "host_copy";
    case Params: return "params";
    case Shard: return "shard";
    case Grads: return "grads";
    case ReducedGrads: return "reduced_grads";
    case Optimizer: return "optimizer";
    case Loss: return "loss";
    case Metrics: return "metrics";
    case Norm: return "norm";
  }
  return "";
}

// Lives from step to step.
bool is_persistent(ResourceKind kind) { return kind == Params || kind == Shard || kind == Optimizer; }
// May stay at the end: values of the step that the run reports, and what lives from step to step.
bool may_stay(ResourceKind kind) { return is_persistent(kind) || kind == Metrics || kind == Norm; }

// A row's sets as lists: the table is asked once for each action of a program.
struct Uses {
  std::vector<ResourceKind> needs;   // reads, kills, and what the row adds to without reading it
  std::vector<ResourceKind> kills;
  std::vector<ResourceKind> defines;  // written and not read: a new value
};

std::array<Uses, kActionKinds> all_uses() {
  std::array<Uses, kActionKinds> table;
  for (int k = 0; k < kActionKinds; ++k) {
    const ActionInfo& row = info(static_cast<ActionKind>(k));
    Uses& uses = table[static_cast<std::size_t>(k)];
    for (int r = 0; r < kResourceKinds; ++r) {
      const auto kind = static_cast<ResourceKind>(r);
      const bool adds_to_loss = kind == Loss && row.writes.has(kind);  // the sums start at zero with the step
      if (row.reads.has(kind) || row.kills.has(kind) || adds_to_loss) uses.needs.push_back(kind);
      if (row.kills.has(kind)) uses.kills.push_back(kind);
      // Parameters are overwritten in place by the optimizer.
      if (row.writes.has(kind) && !row.reads.has(kind) && !adds_to_loss && kind != Params) uses.defines.push_back(kind);
      if (row.writes.has(kind) && kind == Params && row.reads.has(Shard)) uses.defines.push_back(kind);
    }
  }
  return table;
}

// "Forward, RecvForward": the actions whose row has the kind in that set.
template <class Member>
std::string actions_with(Member set, ResourceKind kind) {
  std::string out;
  for (int k = 0; k < kActionKinds; ++k) {
    const ActionInfo& row = info(static_cast<ActionKind>(k));
    if (!(row.*set).has(kind)) continue;
    if (!out.empty()) out += ", ";
    out += row.name;
  }
  return out;
}

// The resources of one rank and their states while its program is read from top to bottom.
class RankDataflow {
 public:
  RankDataflow(const Subject& subject, std::size_t rank, const std::array<Uses, kActionKinds>& uses, Report& report)
      : layout_(subject.layout),
        program_(subject.program()),
        at_stage_level_(subject.plan.level == Level::Stage),
        program_index_(subject.index),
        rank_(rank),
        microbatches_(static_cast<std::size_t>(program_.microbatches)),
        stages_(layout_.stages_of(rank)),
        uses_(uses),
        report_(report) {
    const std::size_t per_stage = kOfMicrobatch.size() * microbatches_ + kOfStage.size();
    states_.assign(kOfRank.size() + stages_.size() * per_stage, State{});
    for (const int s : stages_) {
      for (const ResourceKind kind : kOfStage) {
        if (is_persistent(kind)) state(find(kind, s, -1)).held = true;
      }
    }
    state(find(Loss, -1, -1)).held = true;
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
  static constexpr std::int64_t kAbsent = -1;

  struct State {
    std::uint32_t by = 0;  // index + 1 of the action that last defined or killed it; 0: none did
    bool held = false;
  };

  State& state(std::int64_t index) { return states_[static_cast<std::size_t>(index)]; }

  // Index of a resource among the states, kAbsent where it does not exist for this stage and program.
  // What enters a stage from a stage of the same rank is that stage's output itself.
  std::int64_t find(ResourceKind kind, int s, std::int64_t m) const {
    if (const int k = position(kOfRank, kind); k >= 0) {
      const bool no_loss = kind == Loss && s >= 0 && layout_.stage(s).next >= 0;
      return no_loss ? kAbsent : k;
    }
    if (const int k = position(kOfStage, kind); k >= 0) return base(s) + k;
    const Stage& stage = layout_.stage(s);
    const bool is_forward_tensor = kind == Input || kind == Output;
    if (program_.forward_only && !is_forward_tensor) return kAbsent;
    if (kind == Input || kind == GradInput) {
      if (stage.prev < 0) return kAbsent;
      if (!layout_.receives_input(s)) return of_microbatch(kind == Input ? Output : GradOutput, stage.prev, m);
      if (at_stage_level_) return kAbsent;
    }
    if ((kind == Output || kind == GradOutput) && (stage.next < 0 || (at_stage_level_ && layout_.sends_output(s)))) {
      return kAbsent;
    }
    return of_microbatch(kind, s, m);
  }

  std::int64_t base(int s) const {
    const std::size_t per_stage = kOfMicrobatch.size() * microbatches_ + kOfStage.size();
    return static_cast<std::int64_t>(kOfRank.size() + layout_.local_index(s) * per_stage);
  }
  std::int64_t of_microbatch(ResourceKind kind, int s, std::int64_t m) const {
    return base(s) + static_cast<std::int64_t>(kOfStage.size()) +
           position(kOfMicrobatch, kind) * static_cast<std::int64_t>(microbatches_) + m;
  }

  // Calls use(index, stage) for each resource of that kind that the action concerns: a row without a stage
  // concerns all stages of the rank.
  template <class Use>
  void each(const Action& a, ResourceKind kind, Use use) {
    if (a.stage < 0 && position(kOfStage, kind) >= 0) {
      for (const int s : stages_) use(find(kind, s, -1), s);
      return;
    }
    if (const std::int64_t index = find(kind, a.stage, a.microbatch); index != kAbsent) use(index, a.stage);
  }

  void need(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses_[static_cast<std::size_t>(a.kind)].needs) {
      each(a, kind, [&](std::int64_t index, int s) {
        if (!state(index).held) not_held(a, i, kind, index, s);
      });
    }
  }

  void kill(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses_[static_cast<std::size_t>(a.kind)].kills) {
      each(a, kind, [&](std::int64_t index, int) { state(index) = {static_cast<std::uint32_t>(i + 1), false}; });
    }
  }

  void define(const Action& a, std::size_t i) {
    for (const ResourceKind kind : uses_[static_cast<std::size_t>(a.kind)].defines) {
      each(a, kind, [&](std::int64_t index, int s) {
        const bool assumed = state(index).by == 0 && !is_persistent(kind);
        if (state(index).held && !assumed) twice(i, kind, index, s, a.microbatch);
        state(index) = {static_cast<std::uint32_t>(i + 1), true};
      });
    }
  }

  Place place(std::size_t action) const { return {program_index_, rank_, action}; }

  std::string text(ResourceKind kind, int s, std::int64_t m) const {
    std::string out(resource_name(kind));
    if (position(kOfRank, kind) >= 0) return out;
    out += "(s" + std::to_string(s);
    if (position(kOfMicrobatch, kind) >= 0) out += ", m" + std::to_string(m);
    return out + ")";
  }

  void not_held(const Action& a, std::size_t i, ResourceKind kind, std::int64_t index, int s) {
    const std::string what = text(kind, s, a.microbatch);
    const State found = state(index);
    state(index) = {0, true};  // as if it were there: one error for one cause
    if (found.by > 0) {
      return report_.action(Code::V18, place(i), "uses " + what + ", which " + report_.at(place(found.by - 1)) +
                                                     " has freed");
    }
    std::string writers = actions_with(&ActionInfo::writes, kind);
    // On this rank the tensor between two local stages is defined under its other name.
    if (kind == Input && !layout_.receives_input(s)) {
      writers = "Forward of stage " + std::to_string(layout_.stage(s).prev);
    }
    if (kind == GradOutput && !layout_.sends_output(s)) {
      writers = "Backward or BackwardInput of stage " + std::to_string(layout_.stage(s).next);
    }
    report_.action(Code::V17, place(i), "uses " + what + ", which nothing before it defines; " + writers +
                                            " would define it");
  }

  void twice(std::size_t i, ResourceKind kind, std::int64_t index, int s, std::int64_t m) {
    const std::uint32_t by = state(index).by;
    report_.action(Code::V19, place(i), "defines " + text(kind, s, m) + " again, " +
                                            (by > 0 ? "first defined by " + report_.at(place(by - 1))
                                                    : std::string("which is held from the start")) +
                                            " and not freed since");
  }

  void leftovers() {
    if (state(find(Loss, -1, -1)).held) {
      report_.rank(Code::V20, program_index_, rank_,
                   "loss is still held at the end of the program; ReduceLoss would free it");
    }
    for (const int s : stages_) {
      for (const ResourceKind kind : kOfStage) leftover(kind, s, -1);
      for (const ResourceKind kind : kOfMicrobatch) {
        for (std::size_t m = 0; m < microbatches_; ++m) leftover(kind, s, static_cast<std::int64_t>(m));
      }
    }
  }

  void leftover(ResourceKind kind, int s, std::int64_t m) {
    if (may_stay(kind)) return;
    const std::int64_t index = find(kind, s, m);
    if (index == kAbsent || !state(index).held || state(index).by == 0) return;
    const std::uint32_t by = state(index).by;
    state(index).held = false;  // a tensor between two stages of this rank has two names
    report_.action(Code::V20, place(by - 1), text(kind, s, m) + " is still held at the end of the program; " +
                                                 actions_with(&ActionInfo::kills, kind) + " would free it");
  }

  const Layout& layout_;
  const Program& program_;
  bool at_stage_level_;
  std::size_t program_index_, rank_, microbatches_;
  const std::vector<int>& stages_;
  const std::array<Uses, kActionKinds>& uses_;
  Report& report_;
  std::vector<State> states_;
};

}  // namespace

void check_dataflow(const Subject& subject, Report& report) {
  const std::array<Uses, kActionKinds> uses = all_uses();
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) RankDataflow(subject, r, uses, report).run();
}

}  // namespace fem::ir::verifying
