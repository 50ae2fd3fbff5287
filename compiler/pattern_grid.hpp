// A periodic pattern of unit slots on every rank, and how it is squeezed into an order without raising peak memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/order.hpp"

namespace fem::compiler {

// Forwards and input gradients by slot: operation (kind, chunk) of microbatch i starts at offset + period * i.
struct PatternOffset {
  OpKind kind = OpKind::F;  // F or I
  int chunk = 0;
  std::int64_t offset = 0;
};

// The operations of one rank by time slot; empty slots hold nothing.
using SlotRow = std::vector<std::optional<Op>>;

// Lays the offsets of one rank out for m microbatches and puts each weight gradient into the first free slot after its
// input gradient. On failure the reason: two operations in one slot, an offset below 0, or too many slots.
std::optional<SlotRow> lay_out(const std::vector<PatternOffset>& offsets, std::int64_t period, int rank,
                               const Placement& placement, std::int64_t m, std::string& reason);

// Why the grid is no schedule: an operation stands before something that it needs. "" where it is one.
std::string causality_fault(const std::vector<SlotRow>& grid, const Placement& placement, std::int64_t m);

// Squeezes the grid (arXiv 2405.15362, section 3: repeat, squeeze, reorder), every operation taking one slot:
//   1. list scheduling: a rank runs the ready operation that the grid has first. Forwards keep the grid's order and
//      never exceed the grid's peak in flight of that rank; a weight gradient runs where nothing else is ready, or when
//      its turn comes while a forward waits for memory. Every operation's dependences and the memory for it stand
//      earlier in the grid, so this cannot block.
//   2. operations of the warm-up move into earlier free slots as long as dependences and the peak allow, then the ranks
//      run eagerly; repeated as long as this gets shorter. The warm-up is what a microbatch takes there and back, one
//      slot a stage and direction: moves behind it fill the steady state's gaps, which makes nothing shorter in unit
//      slots and much longer where an input gradient takes more time than a weight gradient.
Order squeeze(const std::vector<SlotRow>& grid, const Placement& placement, std::int64_t m);

}  // namespace fem::compiler
