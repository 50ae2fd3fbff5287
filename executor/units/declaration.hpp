// The unit table's list of tensors, resolved for one configuration, and the check that a unit keeps exactly those.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ir/units.hpp"

namespace fem::exec {

// Format of parameters and activations: precision.compute.
at::ScalarType compute_type(const ir::Settings& settings);

class Declaration {
 public:
  // `what` names the list in errors: "block saved".
  Declaration(std::string_view unit, std::string_view what, std::span<const ir::BufferInfo> rows,
              const ir::UnitDims& dims, at::ScalarType compute);

  // Throws ExecutionError unless the tensors agree with the rows in number, elements and format, in order.
  void check(std::span<const at::Tensor> tensors) const;

 private:
  struct Row {
    std::string_view name;
    std::int64_t elements;
    at::ScalarType type;
  };
  std::string_view unit_, what_;
  std::vector<Row> rows_;
};

// Both lists of a kind of unit.
struct UnitDeclaration {
  UnitDeclaration(ir::UnitKind kind, const ir::Settings& settings);
  Declaration saved, work;
};

}  // namespace fem::exec
