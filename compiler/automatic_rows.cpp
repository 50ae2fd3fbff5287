// The automatic schedule: every rank has a clock and a memory level; forwards are added before the first backward
// arrives, then rounds of one forward and one backward, and weight gradients fill gaps or free memory.
#include <algorithm>

#include "compiler/zero_bubble_search.hpp"

namespace fem::compiler {
namespace {

class Automatic {
 public:
  Automatic(int p, std::int64_t m, const SearchCosts& costs, SearchChoices choices)
      : p_(p), m_(m), costs_(costs), choices_(choices), ranks_(static_cast<std::size_t>(p)) {}

  std::optional<StepRows> build() {
    warm_up();
    for (std::int64_t round = 1; round < m_ && fits_; ++round) {
      forwards(choose_forwards());
      for (int r = p_ - 1; r >= 0; --r) backward(r);
    }
    if (!fits_) return std::nullopt;
    StepRows rows;
    for (int r = 0; r < p_; ++r) {
      while (at(r).weights < m_) put(r, OpKind::W);
      rows.push_back(std::move(at(r).row));
    }
    return rows;
  }

 private:
  struct Rank {
    StepRow row;
    std::int64_t clock = 0, memory = 0, bubble = 0;
    std::int64_t forwards = 0, inputs = 0, weights = 0;
    std::vector<std::int64_t> forward_ends, input_ends;
  };
  Rank& at(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  // When the next forward's or input gradient's data is here; 0 at the pipeline's ends.
  std::int64_t arrival(int r, OpKind kind) {
    if (kind == OpKind::F) {
      return r > 0 ? at(r - 1).forward_ends[static_cast<std::size_t>(at(r).forwards)] + costs_.transfer : 0;
    }
    return r < p_ - 1 ? at(r + 1).input_ends[static_cast<std::size_t>(at(r).inputs)] + costs_.transfer : 0;
  }

  void put(int r, OpKind kind) {
    Rank& rank = at(r);
    const std::int64_t start = kind == OpKind::W ? rank.clock : std::max(rank.clock, arrival(r, kind));
    if (rank.forwards > 0) rank.bubble += start - rank.clock;
    rank.clock = start + costs_.time(kind);
    rank.memory += costs_.memory(kind);
    rank.row.push_back({kind});
    switch (kind) {
      case OpKind::F:
        ++rank.forwards;
        rank.forward_ends.push_back(rank.clock);
        break;
      case OpKind::I:
      case OpKind::B:
        ++rank.inputs;
        rank.input_ends.push_back(rank.clock);
        break;
      case OpKind::W:
        ++rank.weights;
        break;
    }
  }

  std::int64_t largest_bubble() const { return std::ranges::max_element(ranks_, {}, &Rank::bubble)->bubble; }

  // How many forwards each rank adds between its first and its first backward: while memory allows and the backward has
  // not arrived; strictly more on a rank than on the next, so that none waits for its predecessor.
  std::vector<std::int64_t> warm_up_counts() {
    std::vector<std::int64_t> extra(static_cast<std::size_t>(p_), 0);
    std::int64_t first_backward = at(p_ - 1).clock + costs_.input;  // end of the next rank's
    for (int r = p_ - 2; r >= 0; --r) {
      std::int64_t memory = at(r).memory, clock = at(r).clock;
      const std::int64_t arrives = first_backward + costs_.transfer;
      std::int64_t& more = extra[static_cast<std::size_t>(r)];
      while (1 + more < m_ && memory + costs_.forward_memory <= costs_.cap) {
        const std::int64_t compared = choices_.late_first_backward ? clock : clock + costs_.forward;
        if (choices_.late_first_backward ? compared >= arrives : compared > arrives) break;
        memory += costs_.forward_memory;
        clock += costs_.forward;
        ++more;
      }
      first_backward = std::max(clock, arrives) + costs_.input;
    }
    for (std::size_t r = 1; r < extra.size(); ++r) {
      if (1 + extra[r] < m_) extra[r] = std::min(extra[r], std::max<std::int64_t>(extra[r - 1] - 1, 0));
    }
    return extra;
  }

  void warm_up() {
    fits_ = costs_.forward_memory <= costs_.cap;
    if (!fits_) return;
    for (int r = 0; r < p_; ++r) put(r, OpKind::F);
    const std::vector<std::int64_t> extra = warm_up_counts();
    for (int r = 0; r < p_; ++r) {
      for (std::int64_t i = 0; i < extra[static_cast<std::size_t>(r)]; ++i) put(r, OpKind::F);
    }
    for (int r = p_ - 1; r >= 0; --r) put(r, OpKind::I);
  }

  // Leaving a forward out of this round pays when the next rank has two in hand and would be the later one anyway.
  bool holds_back(int r) {
    if (!choices_.hold_forwards || r + 1 >= p_) return false;
    const Rank &rank = at(r), &next = at(r + 1);
    if (rank.forwards < next.forwards + 2) return false;
    const std::int64_t next_done = next.clock + costs_.forward + costs_.input + costs_.transfer;
    if (rank.clock >= next_done) return true;
    std::int64_t memory = rank.memory + costs_.forward_memory, time = costs_.forward;
    for (std::int64_t w = rank.weights; memory > costs_.cap && w < rank.inputs; ++w) {
      memory += costs_.weight_memory;
      time += costs_.weight;
    }
    if (rank.clock + time <= next_done) return false;
    return next_done - rank.clock <= largest_bubble() - rank.bubble;
  }

  std::vector<bool> choose_forwards() {
    std::vector<bool> chosen(static_cast<std::size_t>(p_), false);
    for (int r = 0; r < p_; ++r) chosen[static_cast<std::size_t>(r)] = at(r).forwards < m_ && !holds_back(r);
    for (int r = p_ - 2; r >= 0; --r) {  // what the next rank leaves out this one does not hurry to produce
      const auto i = static_cast<std::size_t>(r);
      chosen[i] = chosen[i] && chosen[i + 1];
    }
    return chosen;
  }

  // Weight gradients that free the memory that `kind` takes, then those that fit into the gap before its data arrives.
  void prepare(int r, OpKind kind) {
    Rank& rank = at(r);
    while (rank.memory + costs_.memory(kind) > costs_.cap) {
      if (rank.weights == rank.inputs) {
        fits_ = false;
        return;
      }
      put(r, OpKind::W);
    }
    const bool waits = kind == OpKind::F ? r > 0 : r < p_ - 1;
    if (!waits) return;
    const std::int64_t arrives = arrival(r, kind);
    while (rank.weights < rank.inputs && rank.clock + costs_.weight <= arrives) put(r, OpKind::W);
    if (rank.weights == rank.inputs || rank.clock >= arrives) return;
    const bool harmless = arrives - rank.clock <= largest_bubble() - rank.bubble;
    if (!harmless || choices_.fill_small_gaps) put(r, OpKind::W);
  }

  void forwards(const std::vector<bool>& chosen) {
    for (int r = 0; r < p_ && fits_; ++r) {
      if (!chosen[static_cast<std::size_t>(r)]) continue;
      prepare(r, OpKind::F);
      if (fits_) put(r, OpKind::F);
    }
  }

  void backward(int r) {
    if (!fits_) return;
    prepare(r, OpKind::I);
    if (!fits_) return;
    if (r == 0 && at(r).forwards == m_) {
      while (at(r).weights < at(r).inputs) put(r, OpKind::W);
    }
    put(r, OpKind::I);
  }

  int p_;
  std::int64_t m_;
  SearchCosts costs_;
  SearchChoices choices_;
  std::vector<Rank> ranks_;
  bool fits_ = true;
};

}  // namespace

std::optional<StepRows> automatic_rows(int p, std::int64_t m, const SearchCosts& costs, SearchChoices choices) {
  return Automatic(p, m, costs, choices).build();
}

}  // namespace fem::compiler
