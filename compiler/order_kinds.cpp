#include "compiler/order_kinds.hpp"

#include <array>

namespace fem::compiler {

std::span<const OrderKind> order_kinds() {
  static constexpr std::array kKinds = {
      OrderKind{"phases", "a list of {repeat, do}: each rank repeats operations, counters advance by themselves", true,
                false, read_phases},
      OrderKind{"priority", "list scheduling: a free rank runs the first ready operation, under caps", false, false,
                read_priority},
      OrderKind{"pattern", "a period and offsets of every operation in unit slots, squeezed under its own peak", false,
                false, read_pattern},
      OrderKind{"search", "the least stage span under a memory cap, from the costs of operations", false, true,
                read_search},
      OrderKind{"table", "one text per rank with every operation, as in 0F0 0F1 0B0 0B1", false, false, read_table},
  };
  return kKinds;
}

}  // namespace fem::compiler
