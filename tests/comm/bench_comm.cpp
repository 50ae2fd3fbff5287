// Latency of the local backend: ./bench_comm. One line per measurement; run it on a machine that does nothing else.
#include <chrono>
#include <cstdio>

#include "world_for_test.hpp"

namespace fem::exec::test {
namespace {

using Clock = std::chrono::steady_clock;
using ir::Group;

double microseconds_per_round(const Mesh& mesh, int rounds, const std::function<void(Communicator&)>& round) {
  double microseconds = 0;
  run_local(mesh, {}, [&](Communicator& comm) {
    for (int i = 0; i < rounds / 10; ++i) round(comm);
    comm.barrier(Group::world);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < rounds; ++i) round(comm);
    comm.barrier(Group::world);
    if (comm.rank() == 0)
      microseconds = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / rounds;
  });
  return microseconds;
}

// There and back between pairs of ranks, all pairs at once: half of it is one message.
void ping_pong(int ranks, std::size_t bytes) {
  std::vector<std::vector<char>> buffers(static_cast<std::size_t>(ranks), std::vector<char>(bytes + 1));
  const double time = microseconds_per_round({.pp = ranks}, 20000, [&](Communicator& comm) {
    char* data = buffers[static_cast<std::size_t>(comm.rank())].data();
    const bool first = comm.rank() % 2 == 0;
    const int peer = first ? comm.rank() + 1 : comm.rank() - 1;
    const P2pHalf there{first, peer, 1, data, bytes}, back{!first, peer, 2, data, bytes};
    comm.exchange({&there, 1});
    comm.exchange({&back, 1});
  });
  std::printf("ping-pong %8zu bytes, %d ranks: %7.2f us per message\n", bytes, ranks, time / 2);
}

void collectives(int ranks) {
  const Mesh mesh{.dp = ranks};
  std::printf("barrier, %d ranks: %.2f us\n", ranks,
              microseconds_per_round(mesh, 5000, [](Communicator& comm) { comm.barrier(Group::dp); }));
  std::vector<std::vector<float>> data(static_cast<std::size_t>(ranks), std::vector<float>(1 << 20));
  const double time = microseconds_per_round(mesh, 50, [&](Communicator& comm) {
    comm.all_reduce_sum(Group::dp, data[static_cast<std::size_t>(comm.rank())]);
  });
  std::printf("all_reduce_sum of 4 MiB, %d ranks: %.0f us\n", ranks, time);
}

}  // namespace
}  // namespace fem::exec::test

int main() {
  using namespace fem::exec::test;
  for (int ranks : {2, 4, 8})
    for (std::size_t bytes : {std::size_t{0}, std::size_t{16384}, std::size_t{1} << 20}) ping_pong(ranks, bytes);
  for (int ranks : {2, 4}) collectives(ranks);
}
