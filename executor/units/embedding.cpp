#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/embedding.h>

#include "executor/error.hpp"
#include "executor/units/llama_units.hpp"

namespace fem::exec {
namespace {

void check_tokens(const at::Tensor& tokens, const ir::UnitDims& dims) {
  FEM_CHECK(tokens.scalar_type() == at::kLong && tokens.numel() == dims.tokens,
            "a microbatch holds " + std::to_string(tokens.numel()) + " tokens, the plan says " +
                std::to_string(dims.tokens) + " int64");
  const auto flat = tokens.contiguous();
  const std::span ids(flat.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(flat.numel()));
  for (std::size_t t = 0; t < ids.size(); ++t)
    FEM_CHECK(ids[t] >= 0 && ids[t] < dims.vocab,
              "token id " + std::to_string(ids[t]) + " at token " + std::to_string(t) +
                  " of the microbatch is not below the vocabulary of " + std::to_string(dims.vocab));
}

}  // namespace

EmbeddingUnit::EmbeddingUnit(const ir::Settings& settings)
    : declared_(ir::UnitKind::embedding, settings), dims_(ir::unit_dims(settings)) {}

at::Tensor EmbeddingUnit::forward(std::span<const at::Tensor> params, const at::Tensor&, const Microbatch& batch,
                                  Tensors* saved, LossSum*) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  check_tokens(batch.tokens, dims_);
  if (saved) {
    *saved = {batch.tokens};
    declared_.saved.check(*saved);
  }
  return at::embedding(params[0], batch.tokens.view({dims_.micro, dims_.seq_len}));
}

at::Tensor EmbeddingUnit::backward_input(std::span<const at::Tensor>, const at::Tensor& dy, Tensors* saved,
                                         Tensors* work) const {
  declared_.saved.check(*saved);
  *work = {std::move((*saved)[0]), dy};
  saved->clear();
  declared_.work.check(*work);
  return {};
}

void EmbeddingUnit::backward_weight(Tensors* work, std::span<const at::Tensor> grads) const {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  declared_.work.check(*work);
  const auto& tokens = (*work)[0];
  const auto& dy = (*work)[1];
  grads[0].index_add_(0, tokens.view(-1), dy.view({dims_.tokens, dims_.hidden}).to(at::kFloat));
  work->clear();
}

}  // namespace fem::exec
