#include "executor/units/unit.hpp"

#include "executor/error.hpp"
#include "executor/units/llama_units.hpp"

namespace fem::exec {

std::unique_ptr<Unit> make_unit(const ir::Settings& settings, std::int64_t unit, const ParallelContext& context) {
  FEM_CHECK(unit >= 0 && unit < ir::unit_count(settings),
            "unit " + std::to_string(unit) + " of a model with " + std::to_string(ir::unit_count(settings)) + " units");
  FEM_CHECK(context.tp == 1 && context.cp == 1,
            "units are not divided over ranks, but tp is " + std::to_string(context.tp) + " and cp " +
                std::to_string(context.cp) + "; both must be 1");
  const auto arithmetic = choose_arithmetic(compute_type(settings));
  switch (ir::unit_kind(settings, unit)) {
    case ir::UnitKind::embedding: return std::make_unique<EmbeddingUnit>(settings);
    case ir::UnitKind::block: return std::make_unique<BlockUnit>(settings, arithmetic);
    case ir::UnitKind::head: return std::make_unique<HeadUnit>(settings, arithmetic);
  }
  return nullptr;
}

}  // namespace fem::exec
