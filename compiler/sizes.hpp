// Sizes of a configuration that must fit one another, whatever the schedule.
#pragma once

#include "compiler/config.hpp"

namespace fem::compiler {

// Each setting within the limits of its row of ir/settings.def; what is wrong is reported where it was written.
bool check_limits(const Configuration& configuration, ir::DiagnosticSink& sink);

// The same, and sizes that must fit one another: heads by hidden width and tensor parallelism, the global batch by
// dp x micro, and so on. Every fault is reported with the values and, where there is one, the nearest setting that
// works.
bool check_sizes(const Configuration& configuration, ir::DiagnosticSink& sink);

// Blocks of every part of the model: parallel.layers_per_stage, or an even division over `parts`. Where it leaves a
// remainder the extra blocks go one each to the middle parts, so that the first, which has the embedding too, and above
// all the last, which has the head and the loss, stay lighter. Empty after diagnosed errors.
std::optional<std::vector<std::int64_t>> divide_layers(const Configuration& configuration, int parts,
                                                       ir::DiagnosticSink& sink);

}  // namespace fem::compiler
