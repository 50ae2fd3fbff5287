// bf16 as the wire carries it: the upper half of an fp32, rounded to nearest, ties to even. A type of our own, for the
// communicators build without LibTorch.
#pragma once

#include <bit>
#include <cstdint>

namespace fem::exec {

struct Bf16 {
  std::uint16_t bits;

  explicit Bf16(float x) {
    const auto wide = std::bit_cast<std::uint32_t>(x);
    const bool nan = (wide & 0x7fffffff) > 0x7f800000;  // rounding could carry its payload away: it stays a quiet NaN
    bits = static_cast<std::uint16_t>(nan ? (wide >> 16) | 0x40 : (wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

}  // namespace fem::exec
