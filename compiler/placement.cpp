#include "compiler/placement.hpp"

#include <array>

namespace fem::compiler {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"loop", "v", "bidirectional"};

}  // namespace

std::span<const std::string_view> placement_names() { return kNames; }
std::string_view name(PlacementKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

int Placement::stage(int rank, int slot) const {
  switch (kind) {
    case PlacementKind::Loop:
      return slot * p + rank;
    case PlacementKind::V:
    case PlacementKind::Bidirectional:
      return slot == 0 ? rank : 2 * p - 1 - rank;
  }
  return -1;
}

int Placement::rank(int stage) const {
  switch (kind) {
    case PlacementKind::Loop:
      return stage % p;
    case PlacementKind::V:
      return stage < p ? stage : 2 * p - 1 - stage;
    case PlacementKind::Bidirectional:
      return stage < p ? stage : 2 * p - 1 - stage;
  }
  return -1;
}

int Placement::slot(int stage) const { return stage / p; }

int Placement::part(int stage) const { return kind == PlacementKind::Bidirectional ? stage % p : stage; }

int Placement::previous(int stage) const { return part(stage) == 0 ? -1 : stage - 1; }

int Placement::next(int stage) const {
  const int parts = kind == PlacementKind::Bidirectional ? p : stages();
  return part(stage) + 1 == parts ? -1 : stage + 1;
}

std::int64_t Placement::microbatches(int slot, std::int64_t m) const {
  if (kind != PlacementKind::Bidirectional) return m;
  return slot == 0 ? (m + 1) / 2 : m / 2;
}

std::int64_t Placement::first_microbatch(int slot, std::int64_t m) const {
  return kind == PlacementKind::Bidirectional && slot == 1 ? microbatches(0, m) : 0;
}

}  // namespace fem::compiler
