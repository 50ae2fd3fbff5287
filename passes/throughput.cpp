#include "passes/throughput.hpp"

#include "ir/units.hpp"

namespace fem::passes {

Throughput throughput(const ir::Plan& plan, const ir::Program& program, const HardwareProfile& profile,
                      double step_time) {
  const auto& settings = plan.settings;
  const auto& parallel = settings.parallel;
  Throughput result;
  result.tokens = program.microbatches * settings.batch.micro * parallel.dp * settings.batch.seq_len;
  const auto parameters = static_cast<double>(ir::parameter_count(settings));
  const double attention = 12.0 * static_cast<double>(settings.model.layers) *
                           static_cast<double>(settings.model.hidden) * static_cast<double>(settings.batch.seq_len);
  result.operations_per_token = (6 * parameters + attention) / (program.forward_only ? 3 : 1);
  if (step_time <= 0) return result;
  result.tokens_per_second = static_cast<double>(result.tokens) / step_time;
  const auto world = static_cast<double>(parallel.pp * parallel.dp * parallel.cp * parallel.tp);
  result.mfu =
      result.operations_per_token * result.tokens_per_second / (world * profile.matmul_peak(number_format(settings)));
  return result;
}

}  // namespace fem::passes
