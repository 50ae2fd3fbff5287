// The rules between processes: run it under mpirun. Without arguments all rules on meshes of the launched size; with
// --fatal NAME one rule that ends the world; with --relaunch N it starts itself under mpirun and then runs the rules;
// with --large messages of more bytes than an int counts (exit code 77: too little memory here).
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "executor/comm/factory.hpp"
#include "executor/comm/mpi_communicator.hpp"
#include "executor/comm/mpi_launch.hpp"
#include "executor/error.hpp"
#include "fatal_rules.hpp"
#include "rules.hpp"
#include "world_for_test.hpp"

namespace fem::exec::test {
namespace {

std::vector<Mesh> meshes(int ranks) {
  std::vector<Mesh> all{Mesh{.pp = ranks}};
  if (ranks == 2) all.push_back({.dp = 2});
  if (ranks == 4) all.push_back({.dp = 2, .tp = 2, .ep = 2});
  return all;
}

class MpiRules : public testing::Test {
 public:
  MpiRules(Communicator& comm, const Rule& rule) : comm_(comm), rule_(rule) {}
  void TestBody() override { rule_.run(comm_); }

 private:
  Communicator& comm_;
  Rule rule_;
};

int run_rules(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const MpiRuntime runtime;
  const LaunchEnvironment launch = detect_launch();
  std::vector<World> worlds;
  for (const Mesh& mesh : meshes(launch.world_size)) {
    worlds.push_back(make_world(Backend::mpi, Topology(settings(mesh)), launch, {std::chrono::milliseconds(30'000)}));
    for (const Rule& rule : rules())
      testing::RegisterTest(("MpiRules_" + mesh.name()).c_str(), rule.name, nullptr, nullptr, __FILE__, __LINE__,
                            [comm = worlds.back()[0].get(), rule]() -> testing::Test* {
                              return new MpiRules(*comm, rule);
                            });
  }
  if (launch.rank != 0) delete testing::UnitTest::GetInstance()->listeners().Release(
      testing::UnitTest::GetInstance()->listeners().default_result_printer());
  const int result = RUN_ALL_TESTS();
  if (result != 0) std::fprintf(stderr, "rules failed on rank %d\n", launch.rank);
  return result;
}

int run_fatal(const std::string& name) {
  for (const FatalRule& rule : fatal_rules()) {
    if (name != rule.name) continue;
    const LaunchEnvironment launch = detect_launch();
    const World world = make_world(Backend::mpi, Topology(settings({.pp = launch.world_size})), launch, rule.options);
    try {
      rule.run(*world[0]);
    } catch (const ExecutionError& error) {
      world[0]->fail(error.what());
      std::printf("RANK %d: %s\n", launch.rank, error.what());
      std::fflush(stdout);
      return 3;  // the communicator's end comes first, and ends every process with 3
    }
    return 0;
  }
  std::fprintf(stderr, "no fatal rule '%s'\n", name.c_str());
  return 2;
}

// One rank's words go to the other, by a message and by a broadcast.
int run_large() {
  constexpr std::size_t kBytes = (std::size_t{1} << 31) + 5, kWords = kBytes / 8 + 1;
  const auto available = static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
                         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (available < 4 * kBytes) return 77;
  const LaunchEnvironment launch = detect_launch();
  const World world = make_world(Backend::mpi, Topology(settings({.pp = launch.world_size})), launch);
  std::vector<std::uint64_t> data(kWords);
  int wrong = 0;
  for (std::uint64_t factor : {std::uint64_t{0x9e3779b97f4a7c15u}, std::uint64_t{0xbf58476d1ce4e5b9u}}) {
    const std::uint64_t last_mask = 0xffffffffffu;  // five bytes of the last word travel
    if (launch.rank == 0)
      for (std::size_t i = 0; i < kWords; ++i) data[i] = i * factor;
    if (factor == 0x9e3779b97f4a7c15u)
      world[0]->exchange(std::vector<P2pHalf>{{launch.rank == 0, 1 - launch.rank, 1, data.data(), kBytes}});
    else
      world[0]->broadcast(ir::Group::world, 0, data.data(), kBytes);
    for (std::size_t i = 0; i + 1 < kWords; ++i) wrong += data[i] != i * factor;
    wrong += (data[kWords - 1] & last_mask) != ((kWords - 1) * factor & last_mask);
  }
  if (wrong != 0) std::fprintf(stderr, "rank %d: %d words are wrong\n", launch.rank, wrong);
  return wrong != 0;
}

int run(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--large") == 0) return run_large();
  if (argc == 3 && std::strcmp(argv[1], "--fatal") == 0) return run_fatal(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--relaunch") == 0 && detect_launch().launcher == Launcher::none)
    launch_mpirun(argc, argv, std::atoi(argv[2]));
  return run_rules(argc, argv);
}

}  // namespace
}  // namespace fem::exec::test

int main(int argc, char** argv) {
  try {
    return fem::exec::test::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
