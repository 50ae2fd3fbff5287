#include "executor/units/declaration.hpp"

#include "executor/error.hpp"

namespace fem::exec {
namespace {

at::ScalarType type_of(ir::Format format, at::ScalarType compute) {
  switch (format) {
    case ir::Format::Compute: return compute;
    case ir::Format::Float32: return at::kFloat;
    case ir::Format::Int64: return at::kLong;
  }
  return compute;
}

std::string describe(std::int64_t elements, at::ScalarType type) {
  return std::to_string(elements) + " x " + c10::toString(type);
}

}  // namespace

at::ScalarType compute_type(const ir::Settings& settings) {
  const auto& word = settings.precision.compute;
  FEM_CHECK(word == "fp32" || word == "bf16", "precision.compute is '" + word + "', not fp32 or bf16");
  return word == "bf16" ? at::kBFloat16 : at::kFloat;
}

Declaration::Declaration(std::string_view unit, std::string_view what, std::span<const ir::BufferInfo> rows,
                         const ir::UnitDims& dims, at::ScalarType compute)
    : unit_(unit), what_(what) {
  for (const auto& row : rows) rows_.push_back({row.name, row.elements(dims), type_of(row.format, compute)});
}

void Declaration::check(std::span<const at::Tensor> tensors) const {
  const auto list = [&] { return std::string(unit_) + " " + std::string(what_); };
  FEM_CHECK(tensors.size() == rows_.size(), list() + " list has " + std::to_string(tensors.size()) +
                                                " tensors, the unit table " + std::to_string(rows_.size()));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto& row = rows_[i];
    FEM_CHECK(tensor.defined() && tensor.numel() == row.elements && tensor.scalar_type() == row.type,
              list() + " tensor '" + std::string(row.name) + "' is " +
                  (tensor.defined() ? describe(tensor.numel(), tensor.scalar_type()) : "undefined") +
                  ", the unit table says " + describe(row.elements, row.type));
  }
}

UnitDeclaration::UnitDeclaration(ir::UnitKind kind, const ir::Settings& settings)
    : saved(ir::name(kind), "saved", ir::info(kind).saved, ir::unit_dims(settings), compute_type(settings)),
      work(ir::name(kind), "work", ir::info(kind).work, ir::unit_dims(settings), compute_type(settings)) {}

}  // namespace fem::exec
