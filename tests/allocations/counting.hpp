// Counts what threads of this program take from the heap, whoever asks: our code, LibTorch, oneDNN, the C++ library.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/comm/progress.hpp"

namespace fem::exec::test {

// While it lives, allocations of the calling thread are counted for the action where `progress` stands.
class Counting {
 public:
  // `counts` has an element for each action and, as its last, one for what happens outside of actions.
  Counting(const Progress& progress, std::vector<std::int64_t>& counts);
  ~Counting();
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
};

// Of all threads, since the program began.
std::int64_t counted_everywhere();

}  // namespace fem::exec::test
