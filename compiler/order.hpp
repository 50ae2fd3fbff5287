// What a schedule decides: the order of forwards and backwards on every pipeline rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/placement.hpp"
#include "ir/diagnostics.hpp"

namespace fem::compiler {

// In the notation of torch.distributed.pipelining: F forward, B whole backward, I input gradient, W weight gradient.
enum class OpKind : std::uint8_t { F, B, I, W };
inline constexpr int kOpKinds = 4;
char letter(OpKind kind);
std::optional<OpKind> op_kind(char letter);
std::string_view noun(OpKind kind);  // "forward", "backward", "input gradient", "weight gradient"

struct Op {
  OpKind kind = OpKind::F;
  bool joined = false;  // overlaps with the next operation of the rank
  std::int16_t stage = 0;
  std::int32_t microbatch = 0;
  friend bool operator==(const Op&, const Op&) = default;
};

using RankOrder = std::vector<Op>;
using Order = std::vector<RankOrder>;  // by pipeline rank

// "0F0 0F1 (0F2;0B0) 0B1": stage, kind, microbatch; an overlapped pair in parentheses.
std::string order_text(const RankOrder& order);

// Every stage of a rank runs each of its microbatches once forward, then once backward, whole or as input gradient and
// later weight gradient; pairs are a forward and a backward. Reports the first fault of the first faulty rank at
// `where`.
bool check_order(const Order& order, const Placement& placement, std::int64_t m, const std::string& schedule,
                 const ir::SourceLocation& where, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
