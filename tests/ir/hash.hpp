// Hashes in place of tensors, for the oracles that execute programs symbolically.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace fem::ir::testing {

using Hash = std::uint64_t;

inline Hash mix(Hash h) {  // the finaliser of splitmix64
  h += 0x9e3779b97f4a7c15u;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

inline Hash hash(std::initializer_list<Hash> parts) {
  Hash h = 1;
  for (const Hash p : parts) h = mix(h ^ mix(p));
  return h;
}

}  // namespace fem::ir::testing
