#include "compiler/zero_bubble_search.hpp"

#include <algorithm>

namespace fem::compiler {
namespace {

// A generator of our own, so that the same seed gives the same order with every standard library: splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t bound) {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % bound;
  }

 private:
  std::uint64_t state_;
};

// Late acceptance hill climbing (Burke and Bykov 2017): a move is kept when the result is no worse than the current
// order or than the one some moves ago.
class Improver {
 public:
  Improver(int p, std::int64_t m, const SearchCosts& costs, SearchBudget budget)
      : costs_(costs), budget_(budget), evaluator_(p, m, costs), random_(budget.seed) {
    ideal_ = m * (costs.forward + costs.input + costs.weight);
  }

  SpanEvaluator& evaluator() { return evaluator_; }

  KindRows improve(KindRows rows, Spans now) {
    KindRows best = rows;
    Spans best_spans = now;
    std::vector<Spans> history(kHistory, now);
    for (std::int64_t i = 0; i < budget_.iterations && best_spans.longest > ideal_; ++i) {
      KindRow& row = rows[random_.below(rows.size())];
      const auto from = static_cast<std::ptrdiff_t>(random_.below(row.size()));
      const auto reach = 1 + static_cast<std::ptrdiff_t>(random_.below(kReach));
      const std::ptrdiff_t to = random_.below(2) ? std::max<std::ptrdiff_t>(from - reach, 0)
                                                 : std::min<std::ptrdiff_t>(from + reach, std::ssize(row) - 1);
      if (!move(row, from, to)) continue;
      const auto spans = peak_memory(row, costs_) <= costs_.cap ? evaluator_.spans(rows) : std::nullopt;
      Spans& earlier = history[static_cast<std::size_t>(i) % kHistory];
      if (spans && (*spans <= now || *spans <= earlier)) {
        now = *spans;
        if (now < best_spans) {
          best_spans = now;
          best = rows;
        }
      } else {
        move(row, to, from);
      }
      earlier = now;
    }
    return best;
  }

 private:
  static constexpr std::size_t kHistory = 64;
  static constexpr std::uint64_t kReach = 12;

  // False where nothing would change.
  static bool move(KindRow& row, std::ptrdiff_t from, std::ptrdiff_t to) {
    const auto begin = row.begin();
    const OpKind kind = row[static_cast<std::size_t>(from)];
    const auto [low, high] = std::minmax(from, to);
    if (std::all_of(begin + low, begin + high + 1, [&](OpKind other) { return other == kind; })) return false;
    if (from < to) std::rotate(begin + from, begin + from + 1, begin + to + 1);
    if (to < from) std::rotate(begin + to, begin + from, begin + from + 1);
    return true;
  }

  SearchCosts costs_;
  SearchBudget budget_;
  SpanEvaluator evaluator_;
  Random random_;
  std::int64_t ideal_;
};

bool fits(const KindRows& rows, const SearchCosts& costs) {
  return std::ranges::all_of(rows, [&](const KindRow& row) { return peak_memory(row, costs) <= costs.cap; });
}

std::vector<KindRows> candidates(int p, std::int64_t m, const SearchCosts& costs) {
  std::vector<KindRows> result;
  for (const bool late : {false, true}) {
    for (const bool hold : {false, true}) {
      for (const bool fill : {false, true}) {
        if (auto rows = automatic_rows(p, m, costs, {late, hold, fill})) result.push_back(std::move(*rows));
      }
    }
  }
  // Warm-ups of so many forwards per following rank, weight gradients so many input gradients late per preceding one.
  for (const auto& [warm_up, lag] : {std::pair{1, 0}, {1, 1}, {2, 2}, {2, 1}}) {
    KindRows rows;
    for (int r = 0; r < p; ++r) rows.push_back(lagged_row(m, warm_up * (p - 1 - r), lag * r));
    result.push_back(std::move(rows));
  }
  return result;
}

}  // namespace

std::optional<KindRows> search_zero_bubble(int p, std::int64_t m, const SearchCosts& costs, SearchBudget budget) {
  Improver improver(p, m, costs, budget);
  std::optional<KindRows> best;
  Spans best_spans;
  for (KindRows& rows : candidates(p, m, costs)) {
    if (!fits(rows, costs)) continue;
    const auto spans = improver.evaluator().spans(rows);
    if (!spans || (best && *spans >= best_spans)) continue;
    best = std::move(rows);
    best_spans = *spans;
  }
  if (!best) return std::nullopt;
  return improver.improve(std::move(*best), best_spans);
}

}  // namespace fem::compiler
