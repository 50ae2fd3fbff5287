// Initial values of parameters: a function of the run's seed and the parameter's name, so the same in every layout.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace fem::exec {

// Fills a contiguous fp32 tensor. Norms: ones. Matrices: normal(0, std); element i takes component i mod 4 of two
// Box-Muller pairs made from block i / 4 of Philox4x32-10 (Salmon et al. 2011) with key = seed and subsequence =
// 64-bit FNV-1a of hf_name. Both copies of a tied embedding are filled under the embedding's name.
void init_parameter(const at::Tensor& values, std::string_view hf_name, std::uint64_t seed, double std, bool is_norm);

}  // namespace fem::exec
