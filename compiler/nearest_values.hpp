// Nearest settings that would work, for messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fem::compiler {

// "; nearest: 6 or 9" for 8 and 3: multiples of `unit`, positive.
std::string nearest_multiples(std::int64_t value, std::int64_t unit);
// "; nearest: 2 or 4" for 3 and 8: divisors of `whole`.
std::string nearest_divisors(std::int64_t value, std::int64_t whole);
// "; nearest: 2 or 4", "; nearest: 4", or "" for none.
std::string nearest_text(const std::vector<std::int64_t>& values);

}  // namespace fem::compiler
