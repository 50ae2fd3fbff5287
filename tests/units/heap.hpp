// The program's heap allocations, counted. Their own file: the compiler must not see through operator new.
#pragma once

#include <cstdint>

namespace fem::exec::test {

std::int64_t heap_allocations();  // of this thread so far

}  // namespace fem::exec::test
