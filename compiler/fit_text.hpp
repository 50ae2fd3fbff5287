// What `femc fit` prints.
#pragma once

#include <string>

#include "compiler/fit.hpp"

namespace fem::compiler {

// For people: a table, and what fell out. For programs: JSON whose keys are stable; docs/memory.md lists them.
std::string fit_text(const FitReport& report, const FitRequest& request, const Configuration& configuration);
std::string fit_json(const FitReport& report, const FitRequest& request, const Configuration& configuration);

// Why nothing is ranked: the smallest peak, or that no setting could be planned.
std::string nothing_fits(const FitReport& report, const FitRequest& request);

}  // namespace fem::compiler
