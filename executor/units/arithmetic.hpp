// How a machine multiplies matrices.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace fem::exec {

// Direct: in the compute format. ThroughFloat32: operands are widened, multiplied in fp32 and the result rounded once;
// for bf16 on CPUs without bf16 instructions, where at::mm in bf16 is more than ten times slower than in fp32, and for
// fp16, which few CPUs multiply. For fp32 both are the same thing.
enum class Arithmetic : std::uint8_t { Direct, ThroughFloat32 };

// Asks the library what this machine does well. Results differ in rounding between the two, so ask once per unit.
Arithmetic choose_arithmetic(at::ScalarType compute);

}  // namespace fem::exec
