// What must end a world, on every backend: each rank's call throws an ExecutionError that says why.
#pragma once

#include <ostream>
#include <span>
#include <vector>

#include "executor/comm/communicator.hpp"

namespace fem::exec::test {

struct FatalRule {
  const char* name;
  void (*run)(Communicator& comm);  // throws on every rank
  // What the error of rank r must contain, in this order; the last row stands for all further ranks.
  std::vector<std::vector<const char*>> expected;
  CommOptions options{std::chrono::milliseconds(30'000)};
};
std::span<const FatalRule> fatal_rules();
inline void PrintTo(const FatalRule& rule, std::ostream* out) { *out << rule.name; }

// Checks one rank's error with EXPECT.
void expect_error(const FatalRule& rule, int rank, const std::string& error);

}  // namespace fem::exec::test
