// Which settings would meet the conditions of a schedule.
#pragma once

#include "compiler/config.hpp"
#include "compiler/schedule.hpp"

namespace fem::compiler {

// Where a condition of the schedule does not hold for `sizes`: a note with the nearest batch.global below and above
// that meets all of them, the rest unchanged. Where no batch does: the nearest parallel.pp, schedule.chunks and value
// of each parameter, each changed alone. Changes of at most 4096 are tried.
void note_working_settings(const Configuration& configuration, const Schedule& schedule, const ScheduleCase& sizes,
                           ir::DiagnosticSink& sink);

}  // namespace fem::compiler
