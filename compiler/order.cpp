#include "compiler/order.hpp"

#include <array>

#include <fmt/format.h>

namespace fem::compiler {
namespace {

constexpr std::string_view kLetters = "FBIW";
constexpr std::array<std::string_view, kOpKinds> kNouns = {"forward", "backward", "input gradient", "weight gradient"};

std::string op_text(const Op& op) { return fmt::format("{}{}{}", op.stage, letter(op.kind), op.microbatch); }

// What has been done with one microbatch on one stage.
enum class Progress : std::uint8_t { Nothing, Forward, Input, Done };

std::string why_not(const Op& op, Progress progress) {
  switch (op.kind) {
    case OpKind::F:
      if (progress != Progress::Nothing) return "runs twice";
      break;
    case OpKind::B:
    case OpKind::I:
      if (progress == Progress::Nothing) return "comes before its forward";
      if (progress != Progress::Forward) return "comes after a backward of the same stage and microbatch";
      break;
    case OpKind::W:
      if (progress == Progress::Done) return "comes after the weight gradient of the same stage and microbatch";
      if (progress != Progress::Input) return "comes before its input gradient";
      break;
  }
  return {};
}

Progress after(OpKind kind) {
  switch (kind) {
    case OpKind::F:
      return Progress::Forward;
    case OpKind::I:
      return Progress::Input;
    case OpKind::B:
    case OpKind::W:
      return Progress::Done;
  }
  return Progress::Done;
}

std::string missing(Progress progress) {
  switch (progress) {
    case Progress::Nothing:
      return "forward";
    case Progress::Forward:
      return "backward";
    case Progress::Input:
      return "weight gradient";
    case Progress::Done:
      break;
  }
  return {};
}

class RankCheck {
 public:
  RankCheck(const Placement& placement, int rank, std::int64_t m) : placement_(placement), rank_(rank), m_(m) {
    for (int slot = 0; slot < placement.slots(); ++slot) {
      progress_.emplace_back(static_cast<std::size_t>(placement.microbatches(slot, m)), Progress::Nothing);
    }
  }

  // The first fault, or "".
  std::string fault(const RankOrder& order) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (std::string text = step(order[i]); !text.empty()) return text;
      if (!order[i].joined) continue;
      const bool pair =
          i + 1 < order.size() && !order[i + 1].joined && order[i].kind == OpKind::F && order[i + 1].kind == OpKind::B;
      if (!pair) return fmt::format("{} is paired, but not as a forward with a whole backward", op_text(order[i]));
      if (order[i].stage == order[i + 1].stage && order[i].microbatch == order[i + 1].microbatch) {
        return fmt::format("{} overlaps with its own backward", op_text(order[i]));
      }
    }
    for (std::size_t slot = 0; slot < progress_.size(); ++slot) {
      for (std::size_t i = 0; i < progress_[slot].size(); ++i) {
        if (progress_[slot][i] == Progress::Done) continue;
        const int stage = placement_.stage(rank_, static_cast<int>(slot));
        const auto first = placement_.first_microbatch(static_cast<int>(slot), m_);
        return fmt::format("stage {} has no {} of microbatch {}", stage, missing(progress_[slot][i]),
                           first + static_cast<std::int64_t>(i));
      }
    }
    return {};
  }

 private:
  std::string step(const Op& op) {
    if (op.stage < 0 || op.stage >= placement_.stages() || placement_.rank(op.stage) != rank_) {
      return fmt::format("{}: stage {} does not lie on this rank", op_text(op), op.stage);
    }
    const int slot = placement_.slot(op.stage);
    const std::int64_t index = op.microbatch - placement_.first_microbatch(slot, m_);
    if (index < 0 || index >= placement_.microbatches(slot, m_)) {
      return fmt::format("{}: stage {} has no microbatch {} (m={})", op_text(op), op.stage, op.microbatch, m_);
    }
    Progress& progress = progress_[static_cast<std::size_t>(slot)][static_cast<std::size_t>(index)];
    const std::string reason = why_not(op, progress);
    if (!reason.empty()) return fmt::format("{} {}", op_text(op), reason);
    progress = after(op.kind);
    return {};
  }

  const Placement& placement_;
  int rank_;
  std::int64_t m_;
  std::vector<std::vector<Progress>> progress_;  // [slot][microbatch of the slot]
};

}  // namespace

char letter(OpKind kind) { return kLetters[static_cast<std::size_t>(kind)]; }

std::optional<OpKind> op_kind(char c) {
  const std::size_t found = kLetters.find(c);
  if (found == std::string_view::npos) return std::nullopt;
  return static_cast<OpKind>(found);
}

std::string_view noun(OpKind kind) { return kNouns[static_cast<std::size_t>(kind)]; }

std::string order_text(const RankOrder& order) {
  std::string text;
  bool inside = false;
  for (const Op& op : order) {
    if (!text.empty()) text += inside ? ";" : " ";
    if (op.joined && !inside) text += "(";
    text += op_text(op);
    if (!op.joined && inside) text += ")";
    inside = op.joined;
  }
  return text;
}

bool check_order(const Order& order, const Placement& placement, std::int64_t m, const std::string& schedule,
                 const ir::SourceLocation& where, ir::DiagnosticSink& sink) {
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const std::string fault = RankCheck(placement, static_cast<int>(rank), m).fault(order[rank]);
    if (fault.empty()) continue;
    sink.error(where, fmt::format("schedule '{}', rank {}: {} (p={}, m={}, v={})", schedule, rank, fault, placement.p,
                                  m, placement.v));
    return false;
  }
  return true;
}

}  // namespace fem::compiler
