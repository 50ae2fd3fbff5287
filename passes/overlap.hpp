// Sets of times, as lists of intervals.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "passes/simulate.hpp"

namespace fem::passes {

// The union of lists, each sorted by start: disjoint, sorted. Linear.
std::vector<ActionTime> merged(std::initializer_list<std::span<const ActionTime>> lists);

// The length of what two sorted lists of disjoint intervals have in common. Linear.
double overlap(std::span<const ActionTime> a, std::span<const ActionTime> b);

}  // namespace fem::passes
