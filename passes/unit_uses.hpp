// Where a rank's program uses each unit's parameters and adds to its gradients, and which units' parameters are worth
// keeping between two uses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/plan.hpp"

namespace fem::passes {

// A row is a unit of a stage: two directions have a stage each for the same unit.
class UnitUses {
 public:
  // Actions of single units.
  UnitUses(const ir::Plan& plan, std::span<const ir::Action> actions);

  std::size_t rows() const { return rows_.size(); }
  std::size_t row(int stage, int unit) const {
    return first_[static_cast<std::size_t>(stage)] +
           static_cast<std::size_t>(unit - plan_.stages[static_cast<std::size_t>(stage)].first_unit);
  }

  struct Row {
    int unit = 0;
    std::size_t last_use = 0;       // index of the last action that reads its parameters
    std::size_t last_gradient = 0;  // and that adds to its gradients
    std::int64_t gathers = 0;       // runs of uses that no other unit's use interrupts
  };
  const Row& at(std::size_t row) const { return rows_[row]; }

  // The units that stay gathered between their uses, by row (parallel.resident). What keeping one saves is the time of
  // its gathers but the first, what it costs is its bytes. The time for each byte is greatest where the unit is
  // gathered most often, and of equals where it is small: its latency is the same. In that order, earlier units first,
  // each is kept that fits into what is left of the budget; one that does not is passed over.
  std::vector<bool> residents(std::int64_t budget) const;

 private:
  const ir::Plan& plan_;
  std::vector<std::size_t> first_;  // by stage
  std::vector<Row> rows_;
};

}  // namespace fem::passes
