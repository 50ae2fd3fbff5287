// What actions read, write and kill. The rows of actions.def name resources by kind; operands make them definite.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace fem::ir {

enum class ResourceKind : std::uint8_t {
  Input,         // (s, m)     activation entering stage s: the same thing as Output of prev(s) on this rank
  Output,        // (s, m)     activation leaving stage s
  GradOutput,    // (s, m)     gradient of Output
  GradInput,     // (s, m)     gradient of Input: the same thing as GradOutput of prev(s) on this rank
  Saved,         // (s, m[, u, k])  what the forward keeps for the backward, in two blocks a unit (see units.hpp)
  SavedRest,     // (s, m[, u])  the blocks of Saved beside the one that the action names; none where it names none
  SavedInput,    // (s, m[, u])  the unit's input, kept for the backward: no copy, the activation itself
  WeightWork,    // (s, m[, u])  what BackwardInput keeps for BackwardWeight
  HostCopy,      // (s, m[, u, k])  a saved block in host memory
  Params,        // (s[, u])   whole parameters, ready for compute
  Shard,         // (s[, u])   this rank's part of the parameters
  Grads,         // (s[, u])   gradient accumulators
  ReducedGrads,  // (s[, u])   gradients summed over the replicas
  Optimizer,     // (s[, u])   moments of the optimizer
  HostOptimizer,  // (s[, u])  the same in host memory, between the steps (memory.offload)
  Loss,          // ()         loss sum, token count, and fingerprints of what the first and the last stage read
  Metrics,       // ()         the same over all ranks, with the finite and stop flags
  Norm,          // ()         global gradient norm
};
inline constexpr int kResourceKinds = static_cast<int>(ResourceKind::Norm) + 1;

std::string_view name(ResourceKind kind);  // "grad_output"

class ResourceSet {
 public:
  constexpr ResourceSet() = default;
  constexpr ResourceSet(std::initializer_list<ResourceKind> kinds) {
    for (ResourceKind k : kinds) bits_ |= 1u << static_cast<unsigned>(k);
  }
  constexpr bool has(ResourceKind k) const { return bits_ >> static_cast<unsigned>(k) & 1u; }
  constexpr bool empty() const { return bits_ == 0; }

 private:
  std::uint32_t bits_ = 0;
};

}  // namespace fem::ir
