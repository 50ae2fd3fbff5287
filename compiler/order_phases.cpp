// The order `phases`: every rank goes through the same list of phases; a phase repeats its operations; counters say
// which chunk and microbatch an operation means. Grammar of an operation: see schedules/README.md.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "compiler/order_kinds.hpp"
#include "compiler/phases.hpp"

namespace fem::compiler {
namespace {

// Goes through the phases of one rank.
class RankBuilder {
 public:
  RankBuilder(const Phases& phases, const ScheduleCase& sizes, const Placement& placement, int rank,
              std::span<const std::int64_t> scope, ir::DiagnosticSink& sink)
      : phases_(phases),
        sizes_(sizes),
        placement_(placement),
        rank_(rank),
        scope_(scope.begin(), scope.end()),
        counters_(scope.size()),
        sink_(sink) {
    scope_.resize(scope.size() + kOpKinds, 0);
    const auto slots = static_cast<std::size_t>(placement.slots());
    for (auto& per_slot : done_in_slot_) per_slot.resize(slots, 0);
    inputs_.resize(slots + 1);
    weights_done_.resize(slots + 1, 0);
  }

  std::optional<RankOrder> build() {
    for (std::size_t walk = 0; walk < kWalks; ++walk) {
      group_[walk] = sizes_.m;
      if (!phases_.walks[walk].group) continue;
      const auto group = phases_.walks[walk].group->evaluate(scope_, sink_);
      if (!group) return std::nullopt;
      if (*group < 1) {
        phases_.walks[walk].group->error(sink_, fmt::format("rank {}: a group of {} microbatches", rank_, *group));
        return std::nullopt;
      }
      group_[walk] = *group;
    }
    for (phase_ = 1; phase_ <= phases_.phases.size(); ++phase_) {
      if (!run(phases_.phases[phase_ - 1])) return std::nullopt;
    }
    return complete() ? std::optional(std::move(order_)) : std::nullopt;
  }

 private:
  static constexpr std::size_t kWalks = Phases::kWalks;
  struct Cell {
    int slot;
    std::int64_t microbatch;  // within the slot
  };

  std::int64_t& counter(OpKind kind) { return scope_[counters_ + static_cast<std::size_t>(kind)]; }
  std::int64_t all() const { return sizes_.m * sizes_.v; }

  bool fail(const PhaseOp& op, const std::string& message) {
    op.text.error(sink_, 0,
                  fmt::format("rank {}: phase {} asks for {} (p={}, m={}, v={})", rank_, phase_, message, sizes_.p,
                              sizes_.m, sizes_.v));
    return false;
  }

  bool run(const Phase& phase) {
    std::int64_t repeat = 1;
    if (phase.repeat) {
      const auto value = phase.repeat->evaluate(scope_, sink_);
      if (!value) return false;
      repeat = *value;
      if (repeat < 0) {
        phase.repeat->error(sink_, fmt::format("rank {}: phase {} would repeat {} times (p={}, m={}, v={})", rank_,
                                               phase_, repeat, sizes_.p, sizes_.m, sizes_.v));
        return false;
      }
    }
    for (std::int64_t i = 0; i < repeat; ++i) {
      const std::size_t before = order_.size();
      for (const PhaseItem& item : phase.items) {
        if (!run(item)) return false;
      }
      // Guards see counters alone: an iteration that did nothing would do nothing again.
      if (order_.size() == before) break;
    }
    return true;
  }

  bool run(const PhaseItem& item) {
    if (item.guard) {
      const auto holds = item.guard->evaluate(scope_, sink_);
      if (!holds) return false;
      if (!*holds) return true;
    }
    for (std::size_t i = 0; i < item.ops.size(); ++i) {
      if (!run(item.ops[i], i + 1 < item.ops.size())) return false;
    }
    return true;
  }

  bool run(const PhaseOp& op, bool joined) {
    int slot = -1;
    if (op.slot) {
      const auto value = op.slot->evaluate(scope_, sink_);
      if (!value) return false;
      if (*value < 0 || *value >= placement_.slots()) {
        return fail(op, fmt::format("chunk {} of {}", *value, placement_.slots()));
      }
      slot = static_cast<int>(*value);
    }
    const auto cell = op.kind == OpKind::W ? next_weight(op, slot) : next(op, slot);
    if (!cell) return false;
    if (op.kind == OpKind::I) {
      inputs_.front().push_back(*cell);
      inputs_[static_cast<std::size_t>(cell->slot) + 1].push_back(*cell);
    }
    ++counter(op.kind);
    const std::int64_t microbatch = placement_.first_microbatch(cell->slot, sizes_.m) + cell->microbatch;
    order_.push_back({op.kind, joined, static_cast<std::int16_t>(placement_.stage(rank_, cell->slot)),
                      static_cast<std::int32_t>(microbatch)});
    return true;
  }

  // The next forward or backward, whole backwards and input gradients sharing one walk.
  std::optional<Cell> next(const PhaseOp& op, int slot) {
    const std::size_t walk = op.kind == OpKind::F ? 0 : 1;
    const Walk& how = phases_.walks[walk];
    const auto what = walk == 0 ? "forward" : "backward";
    if (slot >= 0) {
      std::int64_t& done = done_in_slot_[walk][static_cast<std::size_t>(slot)];
      const std::int64_t count = placement_.microbatches(slot, sizes_.m);
      if (done == count) {
        fail(op, fmt::format("{} {} of {} of chunk {}", what, done + 1, count, slot));
        return std::nullopt;
      }
      const std::int64_t k = done++;
      return Cell{slot, how.microbatches_descending ? count - 1 - k : k};
    }
    const std::int64_t k = done_[walk];
    if (k == all()) {
      fail(op, fmt::format("{} {} of {}", what, k + 1, all()));
      return std::nullopt;
    }
    ++done_[walk];
    const std::int64_t group = std::min(group_[walk], sizes_.m);
    const std::int64_t first = k / (group * sizes_.v) * group;
    const std::int64_t size = std::min(group, sizes_.m - first);
    const std::int64_t in_group = k - first * sizes_.v;
    const auto chunk = static_cast<int>(in_group / size);
    const std::int64_t microbatch = first + in_group % size;
    return Cell{how.chunks_descending ? sizes_.v - 1 - chunk : chunk,
                how.microbatches_descending ? sizes_.m - 1 - microbatch : microbatch};
  }

  // First in, first out: the oldest input gradient (of the chunk) without its weight gradient.
  std::optional<Cell> next_weight(const PhaseOp& op, int slot) {
    const auto queue = static_cast<std::size_t>(slot + 1);
    if (weights_done_[queue] == inputs_[queue].size()) {
      fail(op, "a weight gradient, but none is left to do");
      return std::nullopt;
    }
    return inputs_[queue][weights_done_[queue]++];
  }

  bool complete() {
    const std::int64_t total = placement_.slots() == sizes_.v ? all() : sizes_.m;
    const std::array<std::pair<const char*, std::array<std::int64_t, 2>>, 3> counts = {{
        {"forwards", {counter(OpKind::F), total}},
        {"backwards", {counter(OpKind::B) + counter(OpKind::I), total}},
        {"weight gradients", {counter(OpKind::W), counter(OpKind::I)}},
    }};
    for (const auto& [what, count] : counts) {
      if (count[0] == count[1]) continue;
      phases_.text.error(sink_, 0,
                         fmt::format("rank {}: the phases end after {} of {} {} (p={}, m={}, v={})", rank_, count[0],
                                     count[1], what, sizes_.p, sizes_.m, sizes_.v));
      return false;
    }
    return true;
  }

  const Phases& phases_;
  const ScheduleCase& sizes_;
  const Placement& placement_;
  int rank_;
  std::vector<std::int64_t> scope_;  // with the counters F, B, I, W at the end
  std::size_t counters_;
  ir::DiagnosticSink& sink_;

  RankOrder order_;
  std::size_t phase_ = 0;  // 1-based, for messages
  std::array<std::int64_t, kWalks> group_{}, done_{};
  std::array<std::vector<std::int64_t>, kWalks> done_in_slot_;
  std::vector<std::vector<Cell>> inputs_;  // input gradients in order: [0] of all slots, [1 + slot] of one
  std::vector<std::size_t> weights_done_;
};

class PhasesGenerator final : public OrderGenerator {
 public:
  explicit PhasesGenerator(Phases phases) : phases_(std::move(phases)) {}

  std::optional<Order> generate(const ScheduleCase& sizes, const Placement& placement,
                                std::span<const std::vector<std::int64_t>> lets,
                                ir::DiagnosticSink& sink) const override {
    Order order;
    for (int rank = 0; rank < sizes.p; ++rank) {
      auto built = RankBuilder(phases_, sizes, placement, rank, lets[static_cast<std::size_t>(rank)], sink).build();
      if (!built) return std::nullopt;
      order.push_back(std::move(*built));
    }
    return order;
  }

 private:
  Phases phases_;
};

}  // namespace

std::shared_ptr<const OrderGenerator> read_phases(const OrderSource& source, ir::DiagnosticSink& sink) {
  auto phases = parse_phases(source, sink);
  return phases ? std::make_shared<PhasesGenerator>(std::move(*phases)) : nullptr;
}

}  // namespace fem::compiler
