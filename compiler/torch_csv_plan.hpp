// From a schedule file of torch.distributed.pipelining and a configuration to a plan, and from a plan to such a file.
#pragma once

#include <optional>
#include <string>

#include "compiler/config.hpp"
#include "compiler/torch_csv.hpp"
#include "compiler/torch_csv_check.hpp"
#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"

namespace fem::compiler {

struct ImportOptions {
  bool keep_communication = false;  // sends and receives as the file has them, each an action of its own; without it
                                    // the pass `communication` places them anew
};

// A verified plan at communication level: the order of the file, everything else from the configuration. Its schedule
// settings are the file's name and number of chunks. parallel.pp and the number of microbatches must be the file's, the
// placement a loop or a v. What the plan leaves out of the file is said in notes. Empty after diagnosed errors.
std::optional<ir::Plan> plan_of_torch_csv(const TorchFile& file, const TorchShape& shape,
                                          const Configuration& configuration, ImportOptions options,
                                          ir::DiagnosticSink& sink);

struct ExportOptions {
  bool compute_only = false;  // without sends, receives and REDUCE_GRAD
};

// The program `train` in the current dialect; the plan must be verified. The halves of a batch become single cells in
// an order in which no rank waits for ever even where each send waits for its receive. AllReduce or ReduceScatter of a
// stage becomes REDUCE_GRAD, whole-stage Unshard and Reshard their cells. What has no cell (the rest of the step, parts
// of memory) is left out. Empty after diagnosed errors: two replicas of the stages cannot be written, nor communication
// that the plan does not have yet.
std::optional<std::string> torch_csv_of_plan(const ir::Plan& plan, ExportOptions options, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
