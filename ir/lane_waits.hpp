// The waits between a rank's lanes that its program needs, and no more.
#pragma once

#include "ir/plan.hpp"

namespace fem::ir {

// Gives each rank of a program of level lane the fewest waits that order its lanes by what the actions read, write and
// free and, where there are offsets, by who takes whose bytes; and the labels that go with them. Waits that were there
// go. Presumes a program that verifies but for its waits.
void set_fewest_waits(Plan& plan, std::size_t program);

}  // namespace fem::ir
