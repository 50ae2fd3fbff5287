#include "world_for_test.hpp"

#include <cmath>
#include <exception>
#include <thread>

#include "executor/comm/local_world.hpp"

namespace fem::exec::test {

std::string Mesh::name() const {
  return "pp" + std::to_string(pp) + "_dp" + std::to_string(dp) + "_cp" + std::to_string(cp) + "_tp" +
         std::to_string(tp) + "_ep" + std::to_string(ep);
}

ir::Settings settings(const Mesh& mesh) {
  ir::Settings settings;
  settings.parallel.pp = mesh.pp;
  settings.parallel.dp = mesh.dp;
  settings.parallel.cp = mesh.cp;
  settings.parallel.tp = mesh.tp;
  settings.parallel.ep = mesh.ep;
  settings.parallel.zero = 1;
  settings.parallel.shard = mesh.dp % 2 == 0 ? 2 : 0;  // groups of two, where there are more replicas
  return settings;
}

std::vector<std::string> run_local(const Mesh& mesh, const CommOptions& options,
                                   const std::function<void(Communicator&)>& rank_main) {
  const auto world = make_local_world(Topology(settings(mesh)), options);
  std::vector<std::string> errors(world.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < world.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        rank_main(*world[r]);
      } catch (const std::exception& error) {
        errors[r] = error.what();
        world[r]->fail(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float Random::wide_float() {
  const std::uint64_t bits = next();
  const float mantissa = 1.0f + static_cast<float>(bits >> 41) * 0x1p-23f;
  const float magnitude = std::ldexp(mantissa, static_cast<int>(bits % 25) - 12);
  return bits & 1024 ? -magnitude : magnitude;
}

std::vector<std::uint8_t> random_bytes(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random.next());
  return bytes;
}

std::vector<float> random_floats(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<float> values(count);
  for (auto& value : values) value = random.wide_float();
  return values;
}

}  // namespace fem::exec::test
