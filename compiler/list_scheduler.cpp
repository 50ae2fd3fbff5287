#include "compiler/list_scheduler.hpp"

#include <algorithm>
#include <array>

namespace fem::compiler {
namespace {

constexpr std::int64_t kNever = std::int64_t{1} << 60;

class ListScheduler {
 public:
  ListScheduler(const PriorityRule& rule, const Placement& placement, std::int64_t m)
      : rule_(rule), placement_(placement), m_(m), ranks_(static_cast<std::size_t>(placement.p)) {
    const auto cells = static_cast<std::size_t>(placement.stages() * m);
    for (auto* ends : {&forward_, &backward_}) ends->assign(cells, kNever);
    for (Rank& rank : ranks_) {
      for (auto& done : rank.done) done.resize(static_cast<std::size_t>(placement.slots()), 0);
    }
    split_ = std::ranges::any_of(rule.entries, [](const PriorityEntry& entry) { return entry.kind == OpKind::I; });
  }

  std::optional<Order> run(int& blocked) {
    for (std::int64_t now = 0; now < kNever;) {
      std::int64_t following = kNever;  // the next moment at which something changes
      for (int r = 0; r < placement_.p; ++r) {
        Rank& rank = ranks_[static_cast<std::size_t>(r)];
        if (rank.clock <= now) start(r, now);
        if (rank.clock > now) following = std::min(following, rank.clock);
      }
      now = following;
    }
    Order order;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!complete(ranks_[r])) {
        blocked = static_cast<int>(r);
        return std::nullopt;
      }
      order.push_back(std::move(ranks_[r].order));
    }
    return order;
  }

 private:
  struct Rank {
    RankOrder order;
    std::int64_t clock = 0;
    std::array<std::vector<std::int64_t>, kOpKinds> done;  // [kind][slot]
    std::array<std::int64_t, kOpKinds> total{};
  };

  std::int64_t& end(std::vector<std::int64_t>& ends, int stage, std::int64_t microbatch) {
    return ends[static_cast<std::size_t>(stage * m_ + microbatch)];
  }

  static std::int64_t& count(Rank& rank, OpKind kind, int slot) {
    return rank.done[static_cast<std::size_t>(kind)][static_cast<std::size_t>(slot)];
  }

  bool complete(const Rank& rank) const {
    std::int64_t all = 0;
    for (int slot = 0; slot < placement_.slots(); ++slot) all += placement_.microbatches(slot, m_);
    const auto total = [&](OpKind kind) { return rank.total[static_cast<std::size_t>(kind)]; };
    return split_ ? total(OpKind::W) == all : total(OpKind::B) == all;
  }

  bool ready(Rank& rank, int r, OpKind kind, int slot, std::int64_t now) {
    const std::int64_t i = count(rank, kind, slot);
    if (i == placement_.microbatches(slot, m_)) return false;
    if (kind == OpKind::W) return i < count(rank, OpKind::I, slot);
    const int stage = placement_.stage(r, slot);
    const std::int64_t microbatch = placement_.first_microbatch(slot, m_) + i;
    if (kind == OpKind::F) {
      for (const PriorityCap& cap : rule_.caps) {
        const std::int64_t ahead =
            rank.total[static_cast<std::size_t>(OpKind::F)] - rank.total[static_cast<std::size_t>(cap.behind)];
        if (ahead >= cap.most[static_cast<std::size_t>(r)]) return false;
      }
      const int previous = placement_.previous(stage);
      return previous < 0 || end(forward_, previous, microbatch) <= now;
    }
    if (end(forward_, stage, microbatch) > now) return false;
    const int next = placement_.next(stage);
    return next < 0 || end(backward_, next, microbatch) <= now;
  }

  std::int64_t time(OpKind kind) const {
    switch (kind) {
      case OpKind::F:
        return rule_.forward;
      case OpKind::I:
        return rule_.input;
      case OpKind::W:
        return rule_.weight;
      case OpKind::B:
        return rule_.input + rule_.weight;
    }
    return 0;
  }

  void start(int r, std::int64_t now) {
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    for (const PriorityEntry& entry : rule_.entries) {
      int chosen = -1;
      for (int slot = 0; slot < placement_.slots(); ++slot) {
        if (entry.slot && *entry.slot != slot) continue;
        if (!ready(rank, r, entry.kind, slot, now)) continue;
        if (chosen < 0 || count(rank, entry.kind, slot) < count(rank, entry.kind, chosen)) chosen = slot;
      }
      if (chosen < 0) continue;
      const int stage = placement_.stage(r, chosen);
      const std::int64_t microbatch = placement_.first_microbatch(chosen, m_) + count(rank, entry.kind, chosen)++;
      ++rank.total[static_cast<std::size_t>(entry.kind)];
      rank.clock = now + time(entry.kind);
      if (entry.kind == OpKind::F) end(forward_, stage, microbatch) = rank.clock;
      if (entry.kind == OpKind::I || entry.kind == OpKind::B) end(backward_, stage, microbatch) = rank.clock;
      rank.order.push_back(
          {entry.kind, false, static_cast<std::int16_t>(stage), static_cast<std::int32_t>(microbatch)});
      return;
    }
  }

  const PriorityRule& rule_;
  const Placement& placement_;
  std::int64_t m_;
  bool split_ = false;
  std::vector<std::int64_t> forward_, backward_;  // when done: [stage][microbatch]
  std::vector<Rank> ranks_;
};

}  // namespace

std::optional<Order> list_schedule(const PriorityRule& rule, const Placement& placement, std::int64_t m, int& blocked) {
  return ListScheduler(rule, placement, m).run(blocked);
}

}  // namespace fem::compiler
