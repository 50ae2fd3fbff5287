#include "executor/units/unit.hpp"

#include <ATen/core/LegacyTypeDispatch.h>

#include "executor/error.hpp"
#include "executor/units/llama_units.hpp"

namespace fem::exec {

using NoAutograd = at::AutoDispatchBelowADInplaceOrView;

Unit::Unit(const ir::Settings& settings, std::int64_t unit, std::span<const at::Tensor> params,
           std::span<const at::Tensor> grads, Arithmetic arithmetic, const Rotary* rotary)
    : kind_(ir::unit_kind(settings, unit)),
      memory_(kind_, settings, params.empty() ? c10::Device(c10::kCPU) : params[0].device()),
      phases_{memory_.sequence(ir::Phase::forward), memory_.sequence(ir::Phase::forward),
              memory_.sequence(ir::Phase::forward), memory_.sequence(ir::Phase::backward_input),
              memory_.sequence(ir::Phase::backward_weight)} {
  const auto rows = ir::info(kind_).params.size();
  FEM_CHECK(params.size() == rows && grads.size() == rows,
            "a unit with " + std::to_string(rows) + " parameters was given " + std::to_string(params.size()) +
                " and " + std::to_string(grads.size()) + " gradients");
  const NoAutograd no_autograd;
  const Recording recording{settings, unit, memory_, params, grads, Linear(arithmetic), rotary, call_, phases_};
  switch (kind_) {
    case ir::UnitKind::embedding: record_embedding(recording); break;
    case ir::UnitKind::block: record_block(recording); break;
    case ir::UnitKind::head: record_head(recording); break;
  }
}

Dropout make_dropout(const Recording& r, DropoutPlace place) {
  constexpr std::uint32_t kPlaces = 4;  // of a unit, one to spare
  const auto& d = r.memory.dims();
  return {{.rate = r.settings.model.dropout,
           .seed = static_cast<std::uint64_t>(r.settings.run.seed),
           .stream = static_cast<std::uint32_t>(r.unit) * kPlaces + static_cast<std::uint32_t>(place),
           .sample_elements = d.seq_len * d.hidden},
          r.call.context};
}

void Unit::forward(const UnitBuffers& at, const Microbatch& batch, LossSum* loss, const CallContext& context) {
  FEM_CHECK(kind_ != ir::UnitKind::head || loss, "the head adds to a loss sum, none was given");
  const NoAutograd no_autograd;
  memory_.place(at);
  call_.batch = &batch;
  call_.context = context;
  phases_.forward.run();
  if (kind_ != ir::UnitKind::head) return;
  loss->loss += call_.loss.loss;
  loss->tokens += call_.loss.tokens;
}

void Unit::recompute(const UnitBuffers& at, const Microbatch& batch, Recompute what, const CallContext& context) {
  const NoAutograd no_autograd;
  memory_.place(at);
  call_.batch = &batch;
  call_.context = context;
  (what == Recompute::everything ? phases_.recompute : phases_.recompute_cheap).run();
}

void Unit::backward_input(const UnitBuffers& at, const CallContext& context) {
  const NoAutograd no_autograd;
  memory_.place(at);
  call_.context = context;
  phases_.backward_input.run();
}

void Unit::backward_weight(const UnitBuffers& at, const CallContext& context) {
  const NoAutograd no_autograd;
  memory_.place(at);
  call_.context = context;
  phases_.backward_weight.run();
}

std::unique_ptr<Unit> make_unit(const ir::Settings& settings, std::int64_t unit, const ParallelContext& context,
                                std::span<const at::Tensor> params, std::span<const at::Tensor> grads,
                                const Rotary* rotary) {
  FEM_CHECK(unit >= 0 && unit < ir::unit_count(settings),
            "unit " + std::to_string(unit) + " of a model with " + std::to_string(ir::unit_count(settings)) + " units");
  FEM_CHECK(context.tp == 1 && context.cp == 1,
            "units are not divided over ranks, but tp is " + std::to_string(context.tp) + " and cp " +
                std::to_string(context.cp) + "; both must be 1");
  return std::make_unique<Unit>(settings, unit, params, grads, choose_arithmetic(compute_type(settings)), rotary);
}

}  // namespace fem::exec
