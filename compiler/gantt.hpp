// A simulated program as text: one line a rank, time to the right.
#pragma once

#include <string>

#include "ir/plan.hpp"
#include "passes/simulate.hpp"

namespace fem::compiler {

// Each unit of time has the same number of columns. Where `width` columns suffice every forward and backward carries
// its name, as 2F0 (stage, kind, microbatch; without the stage where each rank has one), and fills its time with '-';
// else letters alone, and where even those are too many several units of time share a column (the last line says so).
// '.' is waiting. `lanes`: a line for each lane of a rank that takes time, with what it does besides the schedule: sF0
// sends the activation of microbatch 0, Gu3 gathers unit 3; the last line explains the letters.
std::string gantt(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation, int width,
                  bool lanes = false);

}  // namespace fem::compiler
