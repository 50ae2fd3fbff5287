// What the user sees of a run: header, progress and evaluation lines, and the metrics file.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "executor/interpreter.hpp"
#include "executor/run_inputs.hpp"
#include "executor/run_options.hpp"
#include "ir/plan.hpp"

namespace fem::exec {

// One step as the reporter tells of it.
struct StepReport {
  std::int64_t step = 0;  // from 0
  const StepResult& result;
  double lr = 0;
  std::int64_t skipped = 0;  // steps until now, this one included
  std::optional<std::int64_t> loss_scale, next_loss_scale;  // of this step and of the one after it; fp16 alone
};

// Rank 0's; the other ranks have none. Metrics are JSON lines with the digits that read back to the same double:
//   {"step":1,"loss":5.5,"grad_norm":1.2,"lr":0.001,"tokens":4096,"skipped":0,"tokens_per_s":8000.0,"elapsed_s":0.5}
// with "loss_scale":65536 after "skipped" in fp16;
//   {"step":10,"eval_loss":3.2,"eval_tokens":4096}
// "step" counts from 1: the number of steps done when the line is written. A value that is not finite is null.
class Reporter {
 public:
  // Opens the metrics file; ExecutionError when it cannot be written.
  Reporter(const ir::Plan& plan, const RunInputs& inputs, const RunOptions& options);

  void header();
  void step(const StepReport& report);
  void evaluation(std::int64_t step, const StepMetrics& metrics);
  void line(const std::string& text);  // anything else worth a line

 private:
  void skip(const StepReport& report);
  double seconds() const;
  void write_metrics(const std::string& line);

  const ir::Plan& plan_;
  const RunInputs& inputs_;
  const RunOptions& options_;
  std::ofstream metrics_;
  std::chrono::steady_clock::time_point start_;
  double logged_at_ = 0;              // seconds of the last progress line
  std::int64_t steps_since_log_ = 0, steps_done_ = 0;
};

// "0:05", "12:34", "3:00:00"
std::string duration_text(double seconds);

}  // namespace fem::exec
