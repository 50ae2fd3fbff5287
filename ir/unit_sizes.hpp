// Bytes of what each kind of unit takes, asked once for a whole program.
#pragma once

#include <array>
#include <cstdint>

#include "ir/action.hpp"
#include "ir/units.hpp"

namespace fem::ir {

struct UnitSizes {
  std::int64_t output, saved_b, saved_w, work, activation;  // blocks of one microbatch
  std::int64_t params, grads;                               // whole, flat: in the compute format, in fp32
  std::int64_t moments;                                     // both of AdamW, of what a rank owns, in fp32
  std::array<std::int64_t, 3> workspace;                    // by Phase
};
using UnitSizeTable = std::array<UnitSizes, kUnitKinds>;
UnitSizeTable unit_sizes(const Settings& settings);

// What an action of that kind needs beside its blocks.
std::int64_t workspace_bytes(const UnitSizes& unit, ActionKind kind);

// Of `unit`, counted over the model.
inline const UnitSizes& sizes_of(const UnitSizeTable& table, const Settings& settings, std::int64_t unit) {
  return table[static_cast<std::size_t>(unit_kind(settings, unit))];
}

}  // namespace fem::ir
