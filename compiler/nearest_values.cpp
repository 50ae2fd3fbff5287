#include "compiler/nearest_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fem::compiler {

std::string nearest_text(const std::vector<std::int64_t>& values) {
  return values.empty() ? std::string() : fmt::format("; nearest: {}", fmt::join(values, " or "));
}

std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  std::vector<std::int64_t> values;
  const std::int64_t below = value / unit * unit;
  if (below > 0) values.push_back(below);
  values.push_back(below + unit);
  return nearest_text(values);
}

std::string nearest_divisors(std::int64_t value, std::int64_t whole) {
  std::vector<std::int64_t> values;
  const auto divides = [&](std::int64_t d) { return whole % d == 0; };
  for (std::int64_t d = value < whole ? value : whole; d >= 1; --d) {
    if (divides(d)) {
      values.push_back(d);
      break;
    }
  }
  for (std::int64_t d = value; d <= whole; ++d) {
    if (divides(d)) {
      values.push_back(d);
      break;
    }
  }
  return nearest_text(values);
}

}  // namespace fem::compiler
