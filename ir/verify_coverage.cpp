#include <array>
#include <string>
#include <vector>

#include "ir/memory_blocks.hpp"
#include "ir/replicas.hpp"
#include "ir/units.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

// Where each kind of action that concerns a microbatch and a stage, or from level unit on one of its units, stands:
// index + 1 in its rank's program, 0: nowhere.
class PlaceTable {
 public:
  PlaceTable(const Layout& layout, bool by_unit, std::size_t microbatches) : microbatches_(microbatches) {
    for (int s = 0; s < static_cast<int>(layout.stages()); ++s) {
      first_piece_.push_back(pieces_);
      pieces_ += by_unit ? static_cast<std::size_t>(layout.stage(s).units) : 1;
    }
    first_piece_.push_back(pieces_);
    first_.resize(kKinds.size() * pieces_ * microbatches_);
  }

  static constexpr std::array kKinds{ActionKind::Forward,      ActionKind::Backward,     ActionKind::BackwardInput,
                                     ActionKind::BackwardWeight, ActionKind::RecvForward, ActionKind::SendForward,
                                     ActionKind::RecvBackward, ActionKind::SendBackward};

  int pieces(int stage) const {
    const auto s = static_cast<std::size_t>(stage);
    return static_cast<int>(first_piece_[s + 1] - first_piece_[s]);
  }
  std::uint32_t& at(ActionKind kind, int stage, int piece, std::size_t microbatch) {
    std::size_t k = 0;
    while (kKinds[k] != kind) ++k;
    const std::size_t row = first_piece_[static_cast<std::size_t>(stage)] + static_cast<std::size_t>(piece);
    return first_[(k * pieces_ + row) * microbatches_ + microbatch];
  }
  static bool holds(ActionKind kind) {
    for (const ActionKind k : kKinds) {
      if (k == kind) return true;
    }
    return false;
  }

 private:
  std::size_t microbatches_, pieces_ = 0;
  std::vector<std::size_t> first_piece_;  // by stage, and the end
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
        by_unit_(subject.plan.level >= Level::Unit),
        places_(layout_, by_unit_, microbatches_) {}

  void run() {
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) scan(r);
    choose_chains();
    for (int s = 0; s < static_cast<int>(layout_.stages()); ++s) {
      for (int piece = 0; piece < places_.pieces(s); ++piece) {
        forwards(s, piece);
        backwards(s, piece);
      }
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
      each_piece(a, [&](int piece) {
        std::uint32_t& first = places_.at(a.kind, a.stage, piece, static_cast<std::size_t>(a.microbatch));
        if (first == 0) {
          first = static_cast<std::uint32_t>(i + 1);
        } else if (first != i + 1) {
          report_.action(code_of(a.kind), {subject_.index, rank, i},
                         "stands twice, first as " + report_.at({subject_.index, rank, first - 1}) +
                             "; one of them is too much");
        }
      });
    }
  }

  // Messages concern their stage as a whole and are kept with its first piece.
  template <class Use>
  void each_piece(const Action& a, Use use) {
    if (!by_unit_ || is_p2p(a.kind)) return use(0);
    if (a.unit >= 0) return use(a.unit - layout_.stage(a.stage).first_unit);
    for (int piece = 0; piece < places_.pieces(a.stage); ++piece) use(piece);
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
        count[layout_.chain(s)] += places_.at(ActionKind::Forward, s, 0, m) != 0;
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
  std::string piece_text(int s, int piece) const {
    const std::string stage = "stage " + std::to_string(s);
    return by_unit_ ? "unit " + std::to_string(layout_.stage(s).first_unit + piece) + " of " + stage : stage;
  }
  void missing(Code code, int s, const std::string& where, std::string_view what, const Missing& m) {
    if (!m.any()) return;
    report_.rank(code, subject_.index, static_cast<std::size_t>(layout_.stage(s).pp),
                 where + " has no " + std::string(what) + " of " + m.text());
  }

  void forwards(int s, int piece) {
    Missing absent;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      const std::uint32_t index = places_.at(ActionKind::Forward, s, piece, m);
      if (belongs(s, m) && index == 0) absent.add(m);
      if (!belongs(s, m) && index != 0) {
        report_.action(Code::V12, place(s, index), other_direction(m));
      }
    }
    missing(Code::V12, s, piece_text(s, piece), "Forward", absent);
  }

  void backwards(int s, int piece) {
    Missing all, input, weight;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      const std::uint32_t whole = places_.at(ActionKind::Backward, s, piece, m);
      const std::uint32_t b = places_.at(ActionKind::BackwardInput, s, piece, m);
      const std::uint32_t w = places_.at(ActionKind::BackwardWeight, s, piece, m);
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
    const std::string where = piece_text(s, piece);
    missing(Code::V13, s, where, "backward", all);
    missing(Code::V13, s, where, "BackwardInput", input);
    missing(Code::V13, s, where, "BackwardWeight", weight);
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
      const std::uint32_t index = places_.at(kind, s, 0, m);
      const bool needed = expected && belongs(s, m);
      if (needed && index == 0) absent.add(m);
      if (!needed && index != 0) {
        report_.action(Code::V14, place(s, index),
                       expected ? other_direction(m) : std::string("a forward_only program exchanges no gradients"));
      }
    }
    missing(Code::V14, s, "stage " + std::to_string(s), name(kind), absent);
  }

  // The parts of the step that stand once for each stage or rank, and their places.
  void step(std::size_t rank) {
    const std::vector<Action>& actions = program_.ranks[rank].actions;
    std::vector<std::vector<Count>> count;  // [local stage][piece]
    for (const int s : layout_.stages_of(rank)) count.emplace_back(static_cast<std::size_t>(places_.pieces(s)));
    Count of_rank{};
    for (const Action& a : actions) {
      if (is_p2p(a.kind)) continue;
      const auto kind = static_cast<std::size_t>(a.kind);
      if (a.stage < 0) {
        ++of_rank[kind];
      } else {
        auto& pieces = count[layout_.local_index(a.stage)];
        each_piece(a, [&](int piece) { ++pieces[static_cast<std::size_t>(piece)][kind]; });
      }
    }
    const std::uint32_t train = !program_.forward_only;
    const std::string whole = "rank " + std::to_string(rank);
    exactly(rank, whole, ActionKind::ReduceLoss, of_rank, 1);
    exactly(rank, whole, ActionKind::GradNorm, of_rank, train);
    for (const int s : layout_.stages_of(rank)) {
      const auto& pieces = count[layout_.local_index(s)];
      for (int piece = 0; piece < places_.pieces(s); ++piece) {
        piece_step(rank, s, piece, pieces[static_cast<std::size_t>(piece)]);
      }
      tied(rank, s, pieces[0][static_cast<std::size_t>(ActionKind::ReduceTiedGrad)]);
    }
    if (subject_.plan.settings.model.tied && train) tied_order(rank);
  }

  using Count = std::array<std::uint32_t, kActionKinds>;

  void piece_step(std::size_t rank, int s, int piece, const Count& count) {
    const std::uint32_t train = !program_.forward_only;
    const std::string where = piece_text(s, piece);
    const bool sharded = subject_.plan.settings.parallel.zero > 0;
    const std::uint32_t reductions = train * this->reductions(s, piece);
    exactly(rank, where, ActionKind::ZeroGrad, count, reductions);
    // Below level unit, how replicas divide the parameters is not written out yet.
    exactly(rank, where, ActionKind::AllReduce, count, sharded && by_unit_ ? 0 : reductions);
    exactly(rank, where, ActionKind::ReduceScatter, count, sharded && by_unit_ ? reductions : 0);
    const bool by_groups = by_unit_ && has_shard_groups(subject_.plan.settings);
    exactly(rank, where, ActionKind::AllReduceShard, count, by_groups ? train : 0);
    exactly(rank, where, ActionKind::ClipGrad, count, train);
    exactly(rank, where, ActionKind::OptimizerStep, count, train);
    const bool from_host = by_unit_ && offloads_optimizer(subject_.plan.settings);
    exactly(rank, where, ActionKind::ReloadOptimizer, count, from_host ? train : 0);
    exactly(rank, where, ActionKind::OffloadOptimizer, count, from_host ? train : 0);
  }

  // How often the gradients of a piece are reduced in a step. A tied copy's are complete only at its end.
  std::uint32_t reductions(int s, int piece) const {
    const Settings& settings = subject_.plan.settings;
    if (!by_unit_ || reduced_once(settings, unit_kind(settings, layout_.stage(s).first_unit + piece))) return 1;
    std::uint32_t microbatches = 0;
    for (std::size_t m = 0; m < microbatches_; ++m) microbatches += belongs(s, m);
    return microbatches;
  }

  void exactly(std::size_t rank, const std::string& where, ActionKind kind, const Count& count,
               std::uint32_t expected) {
    const std::uint32_t found = count[static_cast<std::size_t>(kind)];
    if (found == expected) return;
    report_.rank(Code::V15, subject_.index, rank,
                 where + " has " + std::to_string(found) + " " + std::string(name(kind)) + ", but needs " +
                     std::to_string(expected));
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
      const bool adds = is_weight_backward(a.kind);
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
  bool by_unit_;
  PlaceTable places_;
  std::vector<std::size_t> chain_of_;  // by microbatch
};

}  // namespace

void check_coverage(const Subject& subject, Report& report) { CoverageCheck(subject, report).run(); }

}  // namespace fem::ir::verifying
