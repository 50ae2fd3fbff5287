#include "passes/profile.hpp"

namespace fem::passes {

std::string_view name(NumberFormat format) {
  switch (format) {
    case NumberFormat::fp32: return "fp32";
    case NumberFormat::bf16: return "bf16";
    case NumberFormat::fp16: return "fp16";
  }
  return "";
}

NumberFormat number_format(const ir::Settings& settings) {
  for (int f = 0; f < kNumberFormats; ++f) {
    const auto format = static_cast<NumberFormat>(f);
    if (name(format) == settings.precision.compute) return format;
  }
  return NumberFormat::fp32;
}

std::string_view name(LinkLevel level) {
  switch (level) {
    case LinkLevel::InNode: return "in_node";
    case LinkLevel::BetweenNodes: return "between_nodes";
  }
  return "";
}

}  // namespace fem::passes
