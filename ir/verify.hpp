// The verifier: every invariant of a plan, each with a code.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ir/diagnostics.hpp"
#include "ir/plan.hpp"
#include "ir/text.hpp"

namespace fem::ir {

// A row of invariants.def: "V07", a title, and the paragraph that `femc explain V07` prints.
struct InvariantInfo {
  std::string_view code, title, explanation;
};
std::span<const InvariantInfo> invariants();
const InvariantInfo* find_invariant(std::string_view code);

// Where the text of a plan is at hand its lines are quoted; otherwise messages name program, rank and action.
struct VerifySource {
  const SourceText* text = nullptr;
  const PlanLocations* locations = nullptr;
};

// Passes rewrite a plan until it fits into memory.limit: between them the limit does not count.
enum class MemoryLimit : std::uint8_t { Counts, Ignored };

// Checks all invariants of the plan's level. True when nothing is wrong. Linear in the number of actions.
bool verify(const Plan& plan, DiagnosticSink& sink, VerifySource source = {}, MemoryLimit limit = MemoryLimit::Counts);

// The memory limit alone, of a plan that verifies otherwise.
bool verify_memory(const Plan& plan, DiagnosticSink& sink, VerifySource source = {});

}  // namespace fem::ir
