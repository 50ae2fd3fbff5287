// The learning rate as a function of the number of updates done: independent of layout, restart and skipped steps.
#pragma once

#include <cstdint>

#include "ir/settings.hpp"

namespace fem::exec {

// Linear warm-up lr * (updates + 1) / warmup_steps while updates < warmup_steps, then from lr to min_lr over the
// remaining updates of a run of `steps`: with t = (updates - warmup_steps) / (steps - warmup_steps), limited to 1, the
// factor is (1 + cos(pi t)) / 2 (cosine; Loshchilov and Hutter 2017, eq. 5), 1 - t (linear) or 1 (constant).
double learning_rate(const ir::Settings& settings, std::int64_t updates);

}  // namespace fem::exec
