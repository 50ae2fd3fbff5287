// Bytes of what actions read, write and kill, from ir/units.def and the configured precision. One microbatch, one rank.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ir/plan.hpp"
#include "ir/units.hpp"

namespace fem::passes {

std::int64_t format_bytes(const ir::Settings& settings, ir::Format format);

struct UnitBytes {
  std::int64_t parameters = 0;      // elements, not bytes
  std::vector<std::int64_t> saved;  // by slot
  std::int64_t saved_all = 0, work = 0;
};
using UnitTable = std::array<UnitBytes, ir::kUnitKinds>;
UnitTable unit_bytes(const ir::Settings& settings);

// Persistent state: the working copy of the parameters in the compute format (in fp32 it is the master copy itself),
// fp32 gradient accumulators, fp32 moments and, where the working copy is not fp32, fp32 masters.
struct StateBytes {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  std::int64_t total() const { return parameters + gradients + optimizer; }
  StateBytes& operator+=(const StateBytes& other);
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};
StateBytes state_bytes(const ir::Settings& settings, std::int64_t parameters);

struct StageBytes {
  std::int64_t parameters = 0;  // elements, not bytes
  StateBytes state;
  std::int64_t activation = 0;  // what enters or leaves the stage, and the gradient of either
  std::int64_t saved = 0, work = 0;
  // The forward keeps the stage's input as a saved tensor of its first unit, and the input gradient keeps the stage's
  // output gradient as weight work of its last: neither is there twice.
  bool saved_holds_input = false, work_holds_grad_output = false;
};

// Sizes of a whole plan. Built once; asked per action.
class BufferSizes {
 public:
  explicit BufferSizes(const ir::Plan& plan);

  // For tests and other sizes than the model's: `stages` as given, the units of a plan without sizes of their own.
  BufferSizes(const ir::Plan& plan, std::vector<StageBytes> stages);

  const StageBytes& stage(int s) const { return stages_[static_cast<std::size_t>(s)]; }
  const UnitBytes& unit(ir::UnitKind kind) const { return units_[static_cast<std::size_t>(kind)]; }

  // Bytes of Saved or WeightWork that an action with these operands touches: of its slot, its unit, or its stage.
  std::int64_t saved(const ir::Action& action) const;
  std::int64_t work(const ir::Action& action) const;
  // Elements of the parameters that it touches.
  std::int64_t parameters(const ir::Action& action) const;

 private:
  const UnitBytes& unit_of(const ir::Action& action) const;

  std::int64_t head_;  // index of the model's last unit
  UnitTable units_;
  std::vector<StageBytes> stages_;
};

}  // namespace fem::passes
