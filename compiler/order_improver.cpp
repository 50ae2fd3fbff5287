#include "compiler/order_improver.hpp"

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

class Improver {
 public:
  Improver(StepRows rows, const Placement& placement, std::int64_t m, const SearchCosts& costs, SearchBudget budget)
      : costs_(costs),
        budget_(budget),
        evaluator_(placement, m, costs),
        random_(budget.seed),
        ideal_(placement.slots() * m * (costs.forward + costs.input + costs.weight)),
        rows_(std::move(rows)) {}

  StepRows run() {
    const auto first = evaluator_.spans(rows_);
    if (!first) return std::move(rows_);
    StepRows best = rows_;
    Spans now = *first, best_spans = *first;
    std::vector<Spans> history(kHistory, now);
    for (std::int64_t i = 0; i < budget_.iterations && best_spans.longest > ideal_; ++i) {
      Spans& earlier = history[static_cast<std::size_t>(i) % kHistory];
      if (const auto spans = try_move(std::max(now, earlier))) now = *spans;
      if (now < best_spans) {
        best_spans = now;
        best = rows_;
      }
      earlier = now;
    }
    return best;
  }

 private:
  static constexpr std::size_t kHistory = 64;
  static constexpr std::uint64_t kReach = 12;

  // The spans after a move that is no worse than `worst`; otherwise nothing has changed.
  std::optional<Spans> try_move(const Spans& worst) {
    StepRow& row = rows_[random_.below(rows_.size())];
    const auto from = static_cast<std::ptrdiff_t>(random_.below(row.size()));
    const auto reach = 1 + static_cast<std::ptrdiff_t>(random_.below(kReach));
    const std::ptrdiff_t to = random_.below(2) ? std::max<std::ptrdiff_t>(from - reach, 0)
                                               : std::min<std::ptrdiff_t>(from + reach, std::ssize(row) - 1);
    if (!move(row, from, to)) return std::nullopt;
    if (peak_memory(row, costs_) <= costs_.cap) {
      const auto spans = evaluator_.spans(rows_, worst.longest);
      if (spans && *spans <= worst) return spans;
    }
    move(row, to, from);
    return std::nullopt;
  }

  // False where nothing would change.
  static bool move(StepRow& row, std::ptrdiff_t from, std::ptrdiff_t to) {
    const auto begin = row.begin();
    const Step step = row[static_cast<std::size_t>(from)];
    const auto [low, high] = std::minmax(from, to);
    if (std::all_of(begin + low, begin + high + 1, [&](Step other) { return other == step; })) return false;
    if (from < to) std::rotate(begin + from, begin + from + 1, begin + to + 1);
    if (to < from) std::rotate(begin + to, begin + from, begin + from + 1);
    return true;
  }

  SearchCosts costs_;
  SearchBudget budget_;
  SpanEvaluator evaluator_;
  Random random_;
  std::int64_t ideal_;  // work of a rank
  StepRows rows_;
};

}  // namespace

StepRows improve_order(StepRows rows, const Placement& placement, std::int64_t m, const SearchCosts& costs,
                       SearchBudget budget) {
  return Improver(std::move(rows), placement, m, costs, budget).run();
}

}  // namespace fem::compiler
