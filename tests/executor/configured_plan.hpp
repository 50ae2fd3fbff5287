// A plan as femc makes it of a configuration, for tests that run it.
#pragma once

#include <string>
#include <vector>

#include "ir/plan.hpp"

namespace fem::exec::test {

// `set`: overrides, "parallel.dp=2". Throws std::runtime_error with femc's messages.
ir::Plan configured_plan(const std::string& configuration, const std::vector<std::string>& set);

}  // namespace fem::exec::test
