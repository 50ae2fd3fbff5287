// Bytes of what actions move, from ir/units.def and the configured precision, whether or not it lies in memory of its
// own. One microbatch, one rank. What a rank holds is in ir/memory_blocks.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ir/plan.hpp"
#include "ir/units.hpp"

namespace fem::passes {

std::int64_t format_bytes(const ir::Settings& settings, ir::Format format);

struct UnitBytes {
  std::int64_t parameters = 0;  // elements, not bytes
  std::int64_t saved_all = 0, work = 0;
  std::array<std::int64_t, ir::kSavedBlocks> saved_blocks{};  // as they lie in memory
};
using UnitTable = std::array<UnitBytes, ir::kUnitKinds>;
UnitTable unit_bytes(const ir::Settings& settings);

struct StageBytes {
  std::int64_t parameters = 0;  // elements, not bytes
  std::int64_t activation = 0;  // what enters or leaves the stage, and the gradient of either
  std::int64_t saved = 0;
};

// Sizes of a whole plan. Built once; asked per action.
class BufferSizes {
 public:
  explicit BufferSizes(const ir::Plan& plan);

  const StageBytes& stage(int s) const { return stages_[static_cast<std::size_t>(s)]; }
  const UnitBytes& unit(ir::UnitKind kind) const { return units_[static_cast<std::size_t>(kind)]; }

  // Bytes of what is saved that an action with these operands touches: of its block, its unit, or its stage.
  std::int64_t saved(const ir::Action& action) const;
  // Elements of the parameters that it touches.
  std::int64_t parameters(const ir::Action& action) const;

 private:
  const UnitBytes& unit_of(const ir::Action& action) const;

  std::int64_t head_;  // index of the model's last unit
  UnitTable units_;
  std::vector<StageBytes> stages_;
};

}  // namespace fem::passes
