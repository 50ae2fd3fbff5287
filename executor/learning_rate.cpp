#include "executor/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "executor/error.hpp"

namespace fem::exec {

double learning_rate(const ir::Settings& settings, std::int64_t updates) {
  const auto& o = settings.optimizer;
  if (updates < o.warmup_steps)
    return o.lr * static_cast<double>(updates + 1) / static_cast<double>(o.warmup_steps);
  const std::int64_t span = std::max<std::int64_t>(settings.run.steps - o.warmup_steps, 1);
  const double t = std::min(1.0, static_cast<double>(updates - o.warmup_steps) / static_cast<double>(span));
  if (o.decay == "constant") return o.lr;
  FEM_CHECK(o.decay == "cosine" || o.decay == "linear", "unknown decay '" + o.decay + "'");
  const double factor = o.decay == "cosine" ? 0.5 * (1.0 + std::cos(std::numbers::pi * t)) : 1.0 - t;
  return o.min_lr + (o.lr - o.min_lr) * factor;
}

}  // namespace fem::exec
