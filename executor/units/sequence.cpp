#include "executor/units/sequence.hpp"

#include "executor/error.hpp"
#include "ir/units.hpp"

namespace fem::exec {

at::Tensor Sequence::scratch(at::IntArrayRef sizes, at::ScalarType type) {
  const auto begin = top_;
  const auto elements = c10::multiply_integers(sizes);
  top_ += ir::aligned(elements * static_cast<std::int64_t>(c10::elementSize(type)));
  high_water_ = std::max(high_water_, top_);
  FEM_CHECK(top_ <= limit_, "a unit uses " + std::to_string(top_) + " bytes of workspace, the unit table declares " +
                                std::to_string(limit_));
  return workspace_.view(begin, sizes, type);
}

}  // namespace fem::exec
