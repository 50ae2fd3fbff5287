#include <array>

#include "ir/verify.hpp"

namespace fem::ir {
namespace {

constexpr std::array kInvariants{
#define INVARIANT(code, title, explanation) InvariantInfo{#code, title, explanation},
#include "ir/invariants.def"
};

}  // namespace

std::span<const InvariantInfo> invariants() { return kInvariants; }

const InvariantInfo* find_invariant(std::string_view code) {
  for (const InvariantInfo& row : kInvariants) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace fem::ir
