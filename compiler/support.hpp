// What this version cannot run although the configuration may say it.
#pragma once

#include "compiler/config.hpp"
#include "compiler/placement.hpp"

namespace fem::compiler {

// One error for each setting that asks for more than the executor has, under a schedule of that placement.
bool check_support(const Configuration& configuration, PlacementKind placement, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
