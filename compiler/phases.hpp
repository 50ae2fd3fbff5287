// The order `phases` as it is read from a file.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "compiler/expression.hpp"
#include "compiler/order.hpp"

namespace fem::compiler {

struct OrderSource;

struct PhaseOp {
  OpKind kind = OpKind::F;
  std::optional<Expression> slot;  // the chunk (bidirectional: the direction); none: the walk decides
  ScalarText text;
};

// One entry of `do`: an operation, or a forward and a backward that overlap; with a condition or without.
struct PhaseItem {
  std::vector<PhaseOp> ops;
  std::optional<Expression> guard;
};

struct Phase {
  std::optional<Expression> repeat;  // none: once
  std::vector<PhaseItem> items;
};

// In which order operations without a chunk of their own walk over chunks and microbatches: groups of `group`
// microbatches, inside a group chunk by chunk, inside a chunk the group's microbatches.
struct Walk {
  std::optional<Expression> group;  // none: all microbatches
  bool chunks_descending = false, microbatches_descending = false;
};

struct Phases {
  static constexpr std::size_t kWalks = 2;  // forward, backward
  std::vector<Phase> phases;
  std::array<Walk, kWalks> walks;
  ScalarText text;  // where the list stands
};

std::optional<Phases> parse_phases(const OrderSource& source, ir::DiagnosticSink& sink);

}  // namespace fem::compiler
