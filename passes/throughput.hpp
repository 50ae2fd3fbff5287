// What a step's time means for training: tokens per second, and the share of the machine's peak.
#pragma once

#include <cstdint>

#include "ir/plan.hpp"
#include "passes/profile.hpp"

namespace fem::passes {

struct Throughput {
  std::int64_t tokens = 0;        // of one run of the program, over all replicas
  double operations_per_token = 0;  // 6P + 12Lhs (forward only: a third), PaLM, arXiv 2204.02311, appendix B
  double tokens_per_second = 0;
  double mfu = 0;  // operations per second over the peak of all ranks
};

Throughput throughput(const ir::Plan& plan, const ir::Program& program, const HardwareProfile& profile,
                      double step_time);

}  // namespace fem::passes
