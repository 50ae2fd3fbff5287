// Worlds and data for the communicators' tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"

namespace fem::exec::test {

struct Mesh {
  int pp = 1, dp = 1, cp = 1, tp = 1, ep = 1;
  int size() const { return pp * dp * cp * tp; }
  std::string name() const;  // "pp2_dp2"
};

ir::Settings settings(const Mesh& mesh);

// Runs `rank_main` on every rank of a local world, a thread each. The text of each rank's exception, "" where none; a
// rank that throws fails its communicator, as the program does.
std::vector<std::string> run_local(const Mesh& mesh, const CommOptions& options,
                                   const std::function<void(Communicator&)>& rank_main);

// A small generator with the same values on every machine (splitmix64, Steele et al. 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  float wide_float();  // magnitudes from 2^-12 to 2^12, both signs: sums depend on their order

 private:
  std::uint64_t state_;
};

std::vector<std::uint8_t> random_bytes(std::uint64_t seed, std::size_t count);
std::vector<float> random_floats(std::uint64_t seed, std::size_t count);

}  // namespace fem::exec::test
