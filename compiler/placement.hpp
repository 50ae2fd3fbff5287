// Which stage lies on which pipeline rank.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fem::compiler {

enum class PlacementKind : std::uint8_t { Loop, V, Bidirectional };
std::span<const std::string_view> placement_names();  // "loop", "v", "bidirectional", in the order of the enum
std::string_view name(PlacementKind kind);

// p ranks with v chunks each. A slot is one of the stages of a rank, in the order of the schedule's chunk numbers.
//   loop            stage s lies on rank s mod p; slot c of rank r is stage c * p + r
//   v               stage s lies on rank s if s < p, else 2p - 1 - s (v = 2)
//   bidirectional   two replicas of p stages (v = 1): slot 0 of rank r is stage r of the first, slot 1 is stage p-1-r
//   of
//                   the second; stages of the second are numbered from p. Half of the microbatches flow in each.
struct Placement {
  PlacementKind kind = PlacementKind::Loop;
  int p = 1, v = 1;

  int slots() const { return kind == PlacementKind::Bidirectional ? 2 : v; }
  int stages() const { return slots() * p; }
  int stage(int rank, int slot) const;
  int rank(int stage) const;
  int slot(int stage) const;
  int previous(int stage) const;  // -1: the first of its pipeline
  int next(int stage) const;      // -1: the last of its pipeline
  int part(int stage) const;      // which part of the model, 0-based: the stage, but for the second replica

  // The microbatches of that slot: [first, first + count) of m.
  std::int64_t first_microbatch(int slot, std::int64_t m) const;
  std::int64_t microbatches(int slot, std::int64_t m) const;
};

}  // namespace fem::compiler
