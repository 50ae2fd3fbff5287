// Random damage to programs and to the text of plans.
#pragma once

#include <random>
#include <string>

#include "ir/plan.hpp"

namespace fem::ir::testing {

using Random = std::mt19937;

inline std::size_t below(Random& random, std::size_t n) { return static_cast<std::size_t>(random() % n); }

// Removes, doubles, moves, swaps, renames or changes one action.
void corrupt(Random& random, Program& program);

std::string random_bytes(Random& random, std::size_t n);

// Removes, inserts or replaces a few bytes.
void damage(Random& random, std::string& text);

}  // namespace fem::ir::testing
