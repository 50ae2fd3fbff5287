// What this version cannot run although the configuration may say it.
#pragma once

#include "compiler/config.hpp"

namespace fem::compiler {

// One error for each setting that asks for more than the executor has.
bool check_support(const Configuration& configuration, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
