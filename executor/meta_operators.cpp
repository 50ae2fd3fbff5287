#include "executor/meta_operators.hpp"

#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace fem::exec {
namespace {

// Arguments are [batch, heads, positions, head_dim], as of the operator itself.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor&, const at::Tensor&, double,
                                             bool, const std::optional<at::Tensor>&, std::optional<double>) {
  const at::Tensor log_sum_exp =
      at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(at::kFloat));
  return {at::empty_like(query), log_sum_exp.transpose(1, 2)};
}

// A fresh gradient, [batch, positions, heads, head_dim] in memory.
at::Tensor gradient_of(const at::Tensor& t) {
  return at::empty({t.size(0), t.size(2), t.size(1), t.size(3)}, t.options()).transpose(1, 2);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor&, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor&,
    const at::Tensor&, double, bool, const std::optional<at::Tensor>&, std::optional<double>) {
  return {gradient_of(query), gradient_of(key), gradient_of(value)};
}

}  // namespace

void register_meta_operators() {
  static const auto library = [] {
    torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    aten.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention));
    aten.impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_backward));
    return aten;
  }();
}

}  // namespace fem::exec
