#include "executor/units/init.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <ATen/core/PhiloxRNGEngine.h>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Box-Muller: two uniform words to two standard normals.
std::array<double, 2> normal_pair(std::uint32_t a, std::uint32_t b) {
  const double radius = std::sqrt(-2 * std::log((a + 1.0) * 0x1p-32));  // (0, 1]: log of 0 cannot occur
  const double angle = 2 * std::numbers::pi * (b * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void init_parameter(const at::Tensor& values, std::string_view hf_name, std::uint64_t seed, double std, bool is_norm) {
  FEM_CHECK(values.scalar_type() == at::kFloat && values.is_contiguous(),
            "initial values of '" + std::string(hf_name) + "' go to a contiguous fp32 tensor");
  auto* out = values.mutable_data_ptr<float>();
  const auto count = values.numel();
  if (is_norm) {
    std::fill_n(out, count, 1.0f);
    return;
  }
  at::Philox4_32 random(seed, fnv1a(hf_name), 0);
  for (std::int64_t i = 0; i < count; i += 4) {
    std::array<std::uint32_t, 4> words;
    for (auto& word : words) word = random();
    for (int pair = 0; pair < 2; ++pair) {
      const auto normals = normal_pair(words[2 * pair], words[2 * pair + 1]);
      for (int j = 0; j < 2; ++j)
        if (const auto at = i + 2 * pair + j; at < count) out[at] = static_cast<float>(std * normals[j]);
    }
  }
}

}  // namespace fem::exec
