#include "compiler/order_kinds.hpp"

#include <array>

namespace fem::compiler {

std::span<const OrderKind> order_kinds() {
  static constexpr std::array kKinds = {
      OrderKind{"phases", "a list of {repeat, do}: each rank repeats operations, counters advance by themselves", true,
                read_phases},
      OrderKind{"table", "one text per rank with every operation, as in 0F0 0F1 0B0 0B1", false, read_table},
  };
  return kKinds;
}

}  // namespace fem::compiler
