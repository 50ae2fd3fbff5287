// Plan text: versioned, line-based, one action (or batch) per line. parse(print(p)) == p, and print(parse(t)) == t for
// every t that print wrote. Comments (# to the end of the line) and blank lines are accepted and not kept.
//
//   femtotron plan v1
//   model family=llama layers=8 hidden=64 ...
//   parallel pp=2 dp=2 ...
//   schedule name=1f1b ...
//   ...                                 one line per section of settings.def
//   level communication
//   stage 0 pp=0 prev=-1 next=1 units=0..5         (replica_of=N only where there is one)
//   program train microbatches=8                   ("program eval microbatches=4 forward_only")
//   rank 0
//     ZeroGrad s0
//     Forward s0 m0
//     SendForward s0 m0 to 1
//     SendForwardRecvBackward s0 m1 to 1, s0 m0 from 1      (a batch: names, then operands, in the order of halves)
//     AllReduce s0 over dp
//     OptimizerStep s0 if finite
//   rank 1
//     RecvForward s1 m0 from 0 @1                  (@n only on actions that others await)
//     Forward s1 m0 wait p2p>=1
//     Unshard s1 u7 over dp on copy                (on LANE only where it is not the lane of the action's row)
//   rank 2 arena=8388608                           (bytes; only with an arena)
//     RecvForward s2 m0 from 1 at 4194304          (offsets of the blocks that the batch begins)
//
// Operands stand in the order s m u k (slot), to or from (peer), over (group); then `if finite`, `on`, `at`, `wait`,
// `@`. These belong to the whole batch: offsets, waits and label are held by its first half, lane and condition by
// every half.
// Settings that the header leaves out have the values of settings.def; print writes all of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"

namespace fem::ir {

std::string print_plan(const Plan& plan);

// One action or batch without the indentation, as it stands in the plan text; `actions` starts at the batch.
std::string action_text(std::span<const Action> actions);

// `locations`, where given, receives the line and column of every action.
std::optional<Plan> parse_plan(const SourceText& source, DiagnosticSink& sink, PlanLocations* locations = nullptr);

// 64-bit FNV-1a of the printed plan: ranks compare it before they start.
std::uint64_t plan_digest(const Plan& plan);

}  // namespace fem::ir
