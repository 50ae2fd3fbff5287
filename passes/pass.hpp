// The functions behind the rows of passes.def: run_<name>, one each.
#pragma once

#include "passes/manager.hpp"

namespace fem::passes {

#define PASS(name, ...) bool run_##name(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink& sink);
#define OPTION(...)
#define END_PASS(...)
#include "passes/passes.def"

}  // namespace fem::passes
