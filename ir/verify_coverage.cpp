#include <array>
#include <string>
#include <vector>

#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

// Where each kind of action that concerns a stage and a microbatch stands: index + 1 in its rank's program, 0: nowhere.
class PlaceTable {
 public:
  PlaceTable(std::size_t stages, std::size_t microbatches)
      : stages_(stages), microbatches_(microbatches), first_(kKinds.size() * stages * microbatches) {}

  static constexpr std::array kKinds{ActionKind::Forward,      ActionKind::Backward,     ActionKind::BackwardInput,
                                     ActionKind::BackwardWeight, ActionKind::RecvForward, ActionKind::SendForward,
                                     ActionKind::RecvBackward, ActionKind::SendBackward};

  std::uint32_t& at(ActionKind kind, int stage, std::size_t microbatch) {
    std::size_t k = 0;
    while (kKinds[k] != kind) ++k;
    return first_[(k * stages_ + static_cast<std::size_t>(stage)) * microbatches_ + microbatch];
  }
  static bool holds(ActionKind kind) {
    for (const ActionKind k : kKinds) {
      if (k == kind) return true;
    }
    return false;
  }

 private:
  std::size_t stages_, microbatches_;
  std::vector<std::uint32_t> first_;
};

class CoverageCheck {
 public:
  CoverageCheck(const Subject& subject, Report& report)
      : subject_(subject),
        layout_(subject.layout),
        program_(subject.program()),
        report_(report),
        microbatches_(static_cast<std::size_t>(program_.microbatches)),
        places_(layout_.stages(), microbatches_) {}

  void run() {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) scan(r);
    choose_chains();
    for (int s = 0; s < static_cast<int>(layout_.stages()); ++s) {
      forwards(s);
      backwards(s);
      messages(s);
    }
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) step(r);
  }

 private:
  // A run of microbatches without an action is one error, not one for each.
  class Missing {
   public:
    void add(std::size_t microbatch) {
      if (count_++ == 0) first_ = microbatch;
    }
    bool any() const { return count_ > 0; }
    std::string text() const {
      return "microbatch " + std::to_string(first_) +
             (count_ > 1 ? " (and " + std::to_string(count_ - 1) + " more)" : std::string());
    }

   private:
    std::size_t count_ = 0, first_ = 0;
  };

  void scan(std::size_t rank) {
    const std::vector<Action>& actions = program_.ranks[rank].actions;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (!PlaceTable::holds(a.kind)) continue;
      std::uint32_t& first = places_.at(a.kind, a.stage, static_cast<std::size_t>(a.microbatch));
      if (first == 0) {
        first = static_cast<std::uint32_t>(i + 1);
        continue;
      }
      report_.action(code_of(a.kind), {subject_.index, rank, i},
                     "stands twice, first as " + report_.at({subject_.index, rank, first - 1}) +
                         "; one of them is too much");
    }
  }

  static Code code_of(ActionKind kind) {
    if (is_p2p(kind)) return Code::V14;
    return kind == ActionKind::Forward ? Code::V12 : Code::V13;
  }

  // A microbatch belongs to the direction in which most of its forwards stand.
  void choose_chains() {
    chain_of_.assign(microbatches_, 0);
    if (layout_.chains() == 1) return;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      std::array<std::size_t, 2> count{};
      for (int s = 0; s < static_cast<int>(layout_.stages()); ++s) {
        count[layout_.chain(s)] += places_.at(ActionKind::Forward, s, m) != 0;
      }
      chain_of_[m] = count[1] > count[0];
    }
  }

  bool belongs(int s, std::size_t m) const { return chain_of_[m] == layout_.chain(s); }
  Place place(int s, std::uint32_t index) const {
    return {subject_.index, static_cast<std::size_t>(layout_.stage(s).pp), index - 1};
  }
  static std::string other_direction(std::size_t m) {
    return "microbatch " + std::to_string(m) + " runs in the other direction, through the stages of the other chain";
  }
  void missing(Code code, int s, std::string_view what, const Missing& m) {
    if (!m.any()) return;
    report_.rank(code, subject_.index, static_cast<std::size_t>(layout_.stage(s).pp),
                 "stage " + std::to_string(s) + " has no " + std::string(what) + " of " + m.text());
  }

  void forwards(int s) {
    Missing absent;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      const std::uint32_t index = places_.at(ActionKind::Forward, s, m);
      if (belongs(s, m) && index == 0) absent.add(m);
      if (!belongs(s, m) && index != 0) {
        report_.action(Code::V12, place(s, index), other_direction(m));
      }
    }
    missing(Code::V12, s, "Forward", absent);
  }

  void backwards(int s) {
    Missing all, input, weight;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      const std::uint32_t whole = places_.at(ActionKind::Backward, s, m);
      const std::uint32_t b = places_.at(ActionKind::BackwardInput, s, m);
      const std::uint32_t w = places_.at(ActionKind::BackwardWeight, s, m);
      const std::uint32_t any = whole ? whole : b ? b : w;
      if (program_.forward_only || !belongs(s, m)) {
        if (any) {
          report_.action(Code::V13, place(s, any),
                         program_.forward_only ? "a forward_only program has no backward" : other_direction(m));
        }
        continue;
      }
      if (whole && (b || w)) {
        report_.action(Code::V13, place(s, b ? b : w),
                       report_.at(place(s, whole)) + " adds the same gradients: a microbatch has either Backward, or "
                                                     "BackwardInput and BackwardWeight");
      }
      if (!any) all.add(m);
      if (!whole && any && !b) input.add(m);
      if (!whole && any && !w) weight.add(m);
    }
    missing(Code::V13, s, "backward", all);
    missing(Code::V13, s, "BackwardInput", input);
    missing(Code::V13, s, "BackwardWeight", weight);
  }

  void messages(int s) {
    if (subject_.plan.level < Level::Communication) return;
    const bool train = !program_.forward_only;
    messages(s, ActionKind::RecvForward, layout_.receives_input(s));
    messages(s, ActionKind::SendForward, layout_.sends_output(s));
    messages(s, ActionKind::RecvBackward, train && layout_.sends_output(s));
    messages(s, ActionKind::SendBackward, train && layout_.receives_input(s));
  }

  void messages(int s, ActionKind kind, bool expected) {
    Missing absent;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      const std::uint32_t index = places_.at(kind, s, m);
      const bool needed = expected && belongs(s, m);
      if (needed && index == 0) absent.add(m);
      if (!needed && index != 0) {
        report_.action(Code::V14, place(s, index),
                       expected ? other_direction(m) : std::string("a forward_only program exchanges no gradients"));
      }
    }
    missing(Code::V14, s, name(kind), absent);
  }

  // The parts of the step that stand once for each stage or rank, and their places.
  void step(std::size_t rank) {
    const std::vector<Action>& actions = program_.ranks[rank].actions;
    std::vector<std::array<std::uint32_t, kActionKinds>> count(layout_.stages_of(rank).size());
    std::array<std::uint32_t, kActionKinds> of_rank{};
    for (const Action& a : actions) {
      if (is_p2p(a.kind)) continue;
      const auto kind = static_cast<std::size_t>(a.kind);
      ++(a.stage < 0 ? of_rank : count[layout_.local_index(a.stage)])[kind];
    }
    const std::uint32_t train = !program_.forward_only;
    once(rank, -1, ActionKind::ReduceLoss, of_rank, 1);
    once(rank, -1, ActionKind::GradNorm, of_rank, train);
    for (const int s : layout_.stages_of(rank)) {
      auto& mine = count[layout_.local_index(s)];
      // The two ways to reduce gradients are one part of the step.
      const auto reduce = static_cast<std::size_t>(ActionKind::AllReduce);
      mine[reduce] += mine[static_cast<std::size_t>(ActionKind::ReduceScatter)];
      for (const ActionKind kind :
           {ActionKind::ZeroGrad, ActionKind::AllReduce, ActionKind::ClipGrad, ActionKind::OptimizerStep}) {
        once(rank, s, kind, mine, train);
      }
      tied(rank, s, mine[static_cast<std::size_t>(ActionKind::ReduceTiedGrad)]);
    }
    if (subject_.plan.settings.model.tied && train) tied_order(rank);
  }

  void once(std::size_t rank, int s, ActionKind kind, const std::array<std::uint32_t, kActionKinds>& count,
            std::uint32_t expected) {
    const std::uint32_t found = count[static_cast<std::size_t>(kind)];
    if (found == expected) return;
    const std::string what = kind == ActionKind::AllReduce ? "AllReduce or ReduceScatter" : std::string(name(kind));
    const std::string where = s < 0 ? "rank " + std::to_string(rank) : "stage " + std::to_string(s);
    report_.rank(Code::V15, subject_.index, rank,
                 where + " has " + std::to_string(found) + " " + what + ", but needs " + std::to_string(expected));
  }

  // A stage that holds both copies may name each of them: the first reduction serves both.
  void tied(std::size_t rank, int s, std::uint32_t found) {
    const bool needed = subject_.plan.settings.model.tied && !program_.forward_only;
    const auto most = static_cast<std::uint32_t>(needed ? layout_.tied_copies(s) : 0);
    if (found <= most && (found > 0 || most == 0)) return;
    report_.rank(Code::V16, subject_.index, rank,
                 "stage " + std::to_string(s) + " has " + std::to_string(found) + " ReduceTiedGrad, but needs " +
                     (most == 0 ? "none: it holds no tied copy" : std::to_string(most)));
  }

  void tied_order(std::size_t rank) {
    const std::vector<Action>& actions = program_.ranks[rank].actions;
    std::size_t first = actions.size();
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (a.kind == ActionKind::ReduceTiedGrad && first == actions.size()) first = i;
      const bool adds = a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardWeight;
      if (!adds || first == actions.size() || layout_.tied_copies(a.stage) == 0) continue;
      return report_.action(Code::V16, {subject_.index, rank, first},
                            "stands before " + report_.at({subject_.index, rank, i}) +
                                ", which adds to a tied copy's gradients; it must stand after the last of them");
    }
  }

  const Subject& subject_;
  const Layout& layout_;
  const Program& program_;
  Report& report_;
  std::size_t microbatches_;
  PlaceTable places_;
  std::vector<std::size_t> chain_of_;  // by microbatch
};

}  // namespace

void check_coverage(const Subject& subject, Report& report) { CoverageCheck(subject, report).run(); }

}  // namespace fem::ir::verifying
