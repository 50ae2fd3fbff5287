#include <optional>
#include <string>

#include "ir/replicas.hpp"
#include "ir/units.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

constexpr std::size_t kMostHalves = 4;

// The group that the action must run over, where there is only one; gradients and parameters see below.
std::optional<Group> only_group(ActionKind kind) {
  if (kind == ActionKind::ReduceLoss || kind == ActionKind::GradNorm) return Group::world;
  if (kind == ActionKind::ReduceReplicaGrad) return Group::replica;
  if (kind == ActionKind::ReduceTiedGrad) return Group::tied;
  if (kind == ActionKind::AllReduceShard) return Group::replicate;
  return std::nullopt;
}

class ActionCheck {
 public:
  ActionCheck(const Subject& subject, Report& report)
      : subject_(subject), level_(subject.plan.level), cp_(subject.plan.settings.parallel.cp), report_(report) {}

  void run() {
    for (std::size_t r = 0; r < subject_.program().ranks.size(); ++r) {
      const std::span<const Action> actions = subject_.program().ranks[r].actions;
      for (std::size_t i = 0; i < actions.size();) {
        const std::size_t n = batch_size(actions, i);
        for (std::size_t k = i; k < i + n; ++k) action({subject_.index, r, k}, actions[k]);
        if (n > 1 || actions[i].joined()) batch({subject_.index, r, i}, actions.subspan(i, n));
        i += n;
      }
    }
  }

 private:
  void action(Place place, const Action& a) {
    if (!operands(place, a)) return;
    const ActionInfo& row = info(a.kind);
    if (row.has(operand::kS)) rank(place, a);
    if (row.has(operand::kU) && a.unit >= 0) unit(place, a);
    if (row.has(operand::kPeer)) peer(place, a);
    if (row.has(operand::kG)) group(place, a);
    if (a.if_finite() != (a.kind == ActionKind::OptimizerStep)) {
      report_.action(Code::V09, place,
                     std::string(row.name) + (a.if_finite() ? " must run in every step, remove 'if finite'"
                                                            : " must carry 'if finite'"));
    }
    level(place, a, row);
  }

  bool operands(Place place, const Action& a) {
    const ActionInfo& row = info(a.kind);
    const auto operand = [&](unsigned bit, std::string_view what, std::int64_t value, std::int64_t count,
                             bool optional) {
      if (value == -1 && (optional || !row.has(bit))) return true;
      std::string message = std::string(row.name);
      if (!row.has(bit)) {
        message += " names no " + std::string(what) + ", but has " + std::to_string(value);
      } else if (value < 0 || value >= count) {
        message += ": " + std::string(what) + " " + std::to_string(value) + " must be between 0 and " +
                   std::to_string(count - 1);
      } else {
        return true;
      }
      report_.action(Code::V05, place, std::move(message));
      return false;
    };
    const auto stages = static_cast<std::int64_t>(subject_.layout.stages());
    bool ok = operand(operand::kS, "stage", a.stage, stages, false);
    ok &= operand(operand::kM, "microbatch", a.microbatch, subject_.program().microbatches, false);
    ok &= operand(operand::kU, "unit", a.unit, subject_.plan.settings.model.layers + 2, true);
    ok &= operand(operand::kSlot, "saved block", a.slot, kSavedBlocks, true);
    ok &= operand(operand::kPeer, "peer", a.peer, subject_.plan.settings.parallel.pp, false);
    ok &= operand(operand::kG, "group", a.group == Group::none ? -1 : static_cast<int>(a.group), kGroups, false);
    return ok;
  }

  void rank(Place place, const Action& a) {
    const int owner = subject_.layout.stage(a.stage).pp;
    if (static_cast<std::size_t>(owner) == place.rank) return;
    report_.action(Code::V06, place, "stage " + std::to_string(a.stage) + " runs on rank " + std::to_string(owner) +
                                         ", not on rank " + std::to_string(place.rank));
  }

  void unit(Place place, const Action& a) {
    const Stage& stage = subject_.layout.stage(a.stage);
    if (a.unit >= stage.first_unit && a.unit < stage.first_unit + stage.units) return;
    report_.action(Code::V05, place,
                   "unit " + std::to_string(a.unit) + " is not of stage " + std::to_string(a.stage) +
                       ", which has units " + std::to_string(stage.first_unit) + " to " +
                       std::to_string(stage.first_unit + stage.units - 1));
  }

  void peer(Place place, const Action& a) {
    const Stage& stage = subject_.layout.stage(a.stage);
    const bool to_next = a.kind == ActionKind::SendForward || a.kind == ActionKind::RecvBackward;
    const int neighbour = to_next ? stage.next : stage.prev;
    const std::string which = to_next ? "next" : "prev";
    const std::string of = "stage " + std::to_string(a.stage);
    if (neighbour < 0) {
      return report_.action(Code::V07, place, of + " has no " + which + " stage to exchange with");
    }
    const int expected = subject_.layout.stage(neighbour).pp;
    if (expected == stage.pp) {
      return report_.action(Code::V07, place,
                            of + " and its " + which + ", stage " + std::to_string(neighbour) + ", are both on rank " +
                                std::to_string(expected) + ": nothing is exchanged between them");
    }
    if (a.peer != expected) {
      report_.action(Code::V07, place, "the peer must be " + std::to_string(expected) + ", the rank of " + which +
                                           " stage " + std::to_string(neighbour) + ", not " + std::to_string(a.peer));
    }
  }

  void group(Place place, const Action& a) {
    std::string expected;
    if (const std::optional<Group> only = only_group(a.kind)) {
      if (a.group != *only) expected = name(*only);
    } else if (a.kind != ActionKind::AllReduce && has_shard_groups(subject_.plan.settings) && level_ >= Level::Unit) {
      if (a.group != Group::shard) expected = "shard";
    } else if (a.kind == ActionKind::Unshard) {
      if (a.group != Group::dp && a.group != Group::dp_cp) expected = "dp or dp_cp";
    } else if (a.group != Group::dp_cp && !(a.group == Group::dp && cp_ == 1)) {
      expected = "dp_cp";
    }
    if (expected.empty()) return;
    report_.action(Code::V11, place, std::string(name(a.kind)) + " must run over " + expected + ", not over " +
                                         std::string(name(a.group)));
  }

  void level(Place place, const Action& a, const ActionInfo& row) {
    if (row.level > level_) {
      report_.action(Code::V10, place, std::string(row.name) + " appears from level " + std::string(name(row.level)) +
                                           " on, this plan is at level " + std::string(name(level_)));
    }
    if (level_ < Level::Unit && (a.unit != -1 || a.slot != -1)) {
      report_.action(Code::V10, place, std::string(row.name) + " names a single " +
                                           (a.slot != -1 ? "saved block" : "unit") +
                                           ", which stands from level unit on");
    }
    if (level_ == Level::Lane) return;
    if (a.lane != row.lane) {
      report_.action(Code::V10, place,
                     "a lane other than " + std::string(name(row.lane)) + " is given at level lane only");
    }
    if (a.label != 0) report_.action(Code::V10, place, "labels stand at level lane only");
  }

  void batch(Place place, std::span<const Action> halves) {
    const std::string problem = batch_problem(halves);
    if (!problem.empty()) report_.action(Code::V08, place, problem);
  }

  std::string batch_problem(std::span<const Action> halves) const {
    if (halves.back().joined()) return "the last action of a rank is joined to nothing";
    const bool pair =
        halves.size() == 2 && halves[0].kind == ActionKind::Forward && halves[1].kind == ActionKind::Backward;
    for (const Action& half : halves) {
      if (!pair && !is_p2p(half.kind)) {
        return std::string(name(half.kind)) + " cannot stand in this batch: only sends and receives, or Forward with "
                                              "Backward, are joined";
      }
    }
    if (halves.size() > kMostHalves) {
      return "a batch of " + std::to_string(halves.size()) + " halves, at most " + std::to_string(kMostHalves) +
             " are allowed";
    }
    for (std::size_t i = 1; i < halves.size(); ++i) {
      if (halves[i].lane != halves[0].lane) return "the halves of a batch run on one lane";
      if (halves[i].label != 0) return "the label of a batch belongs to its first half";
      for (std::size_t j = 0; j < i; ++j) {
        if (halves[i].kind == halves[j].kind && halves[i].stage == halves[j].stage &&
            halves[i].microbatch == halves[j].microbatch) {
          return "the batch holds " + action_text(halves.subspan(j, 1)) + " twice";
        }
      }
    }
    return {};
  }

  const Subject& subject_;
  Level level_;
  std::int64_t cp_;
  Report& report_;
};

}  // namespace

void check_actions(const Subject& subject, Report& report) { ActionCheck(subject, report).run(); }

}  // namespace fem::ir::verifying
