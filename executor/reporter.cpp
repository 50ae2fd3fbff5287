#include "executor/reporter.hpp"

#include <cmath>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "executor/error.hpp"
#include "ir/text.hpp"
#include "ir/units.hpp"

namespace fem::exec {

std::string duration_text(double seconds) {
  const auto total = static_cast<std::int64_t>(seconds + 0.5);
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

Reporter::Reporter(const ir::Plan& plan, const RunInputs& inputs, const RunOptions& options)
    : plan_(plan), inputs_(inputs), options_(options), start_(std::chrono::steady_clock::now()) {
  if (options.metrics.empty()) return;
  metrics_.open(options.metrics, options.resume.empty() ? std::ios::trunc : std::ios::app);
  if (!metrics_) throw ExecutionError("cannot write the metrics file " + options.metrics.string());
}

double Reporter::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Reporter::line(const std::string& text) {
  if (options_.out) *options_.out << text << '\n' << std::flush;
}

void Reporter::write_metrics(const std::string& text) {
  if (!metrics_.is_open()) return;
  metrics_ << text << '\n' << std::flush;
  if (!metrics_) throw ExecutionError("cannot write the metrics file " + options_.metrics.string());
}

void Reporter::header() {
  const ir::Settings& s = plan_.settings;
  const ir::UnitDims d = ir::unit_dims(s);
  std::size_t actions = 0;
  for (const ir::RankProgram& rank : plan_.find("train")->ranks) actions += rank.actions.size();
  line(fmt::format("model    {} layers, hidden {}, {} heads ({} kv), vocab {}{}: {} parameters, {}", s.model.layers,
                   s.model.hidden, d.heads, d.kv_heads, s.model.vocab, s.model.tied ? ", tied" : "",
                   ir::parameter_count(s), s.precision.compute));
  line(fmt::format("layout   pp={} dp={} tp={} cp={}: {} ranks, backend {}", s.parallel.pp, s.parallel.dp,
                   s.parallel.tp, s.parallel.cp, s.parallel.pp * s.parallel.dp * s.parallel.tp * s.parallel.cp,
                   options_.backend));
  std::string stages;
  for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
    const ir::Stage& stage = plan_.stages[i];
    stages += fmt::format("{}s{} on pp {} units {}..{}", i ? ", " : "", i, stage.pp, stage.first_unit,
                          stage.first_unit + stage.units - 1);
  }
  line("stages   " + stages);
  line(fmt::format("plan     {}, {} microbatches, {} actions a step, digest {:016x}", s.schedule.name,
                   plan_.find("train")->microbatches, actions, ir::plan_digest(plan_)));
  line(fmt::format("batch    {} sequences of {} tokens, {} a microbatch", s.batch.global, s.batch.seq_len,
                   s.batch.micro));
  line(fmt::format("data     {}: {} tokens, {} samples an epoch", inputs_.train_data->bin_path(),
                   inputs_.train_data->tokens(), inputs_.train->samples()));
  if (inputs_.first_step > 0)
    line(fmt::format("resumed  after step {}, {} updates", inputs_.first_step, inputs_.updates));
  for (const std::string& warning : inputs_.warnings) line("warning: " + warning);
}

void Reporter::step(const StepReport& report) {
  const StepResult& result = report.result;
  if (!result.finite) skip(report);
  ++steps_done_;
  ++steps_since_log_;
  const std::int64_t steps = plan_.settings.run.steps, done = report.step + 1;
  const bool log = done % plan_.settings.run.log_interval == 0 || done == steps;
  const double now = seconds();
  const double step_tokens = static_cast<double>(plan_.settings.batch.global * plan_.settings.batch.seq_len);
  const double rate = step_tokens * static_cast<double>(steps_since_log_) / std::max(now - logged_at_, 1e-9);
  nlohmann::ordered_json json;
  json["step"] = done;
  json["loss"] = result.metrics.loss();
  json["grad_norm"] = result.grad_norm;
  json["lr"] = report.lr;
  json["tokens"] = result.metrics.tokens;
  json["skipped"] = report.skipped;
  if (report.loss_scale) json["loss_scale"] = *report.loss_scale;
  json["tokens_per_s"] = rate;
  json["elapsed_s"] = now;
  write_metrics(json.dump());
  if (!log) return;
  const double remaining = now / static_cast<double>(steps_done_) * static_cast<double>(steps - done);
  line(fmt::format("step {:>{}}/{}  loss {:.4f}  grad norm {:.4f}  lr {:.3e}  {:.0f} tokens/s  elapsed {}  "
                   "remaining {}", done, std::to_string(steps).size(), steps, result.metrics.loss(),
                   std::fabs(result.grad_norm), report.lr, rate, duration_text(now), duration_text(remaining)));
  logged_at_ = now;
  steps_since_log_ = 0;
}

void Reporter::skip(const StepReport& report) {
  std::string scale;
  if (report.loss_scale && report.loss_scale != report.next_loss_scale)
    scale = fmt::format("; loss scale {} -> {}", *report.loss_scale, *report.next_loss_scale);
  line(fmt::format("step {} skipped: {} ({} skipped so far{})", report.step + 1, report.result.problem, report.skipped,
                   scale));
}

void Reporter::evaluation(std::int64_t step, const StepMetrics& metrics) {
  nlohmann::ordered_json json;
  json["step"] = step;
  json["eval_loss"] = metrics.loss();
  json["eval_tokens"] = metrics.tokens;
  write_metrics(json.dump());
  line(fmt::format("eval after step {}: loss {:.4f} on {} tokens", step, metrics.loss(), metrics.tokens));
}

}  // namespace fem::exec
