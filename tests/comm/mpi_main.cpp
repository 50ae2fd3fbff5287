// The rules between processes: run it under mpirun. Without arguments all rules on meshes of the launched size; with
// --fatal NAME one rule that ends the world; with --relaunch N it starts itself under mpirun and then runs the rules.
#include <gmock/gmock.h>

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
    worlds.push_back(make_world(Backend::mpi, settings(mesh), launch, {std::chrono::milliseconds(30'000)}));
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
    const World world = make_world(Backend::mpi, settings({.pp = launch.world_size}), launch, rule.options);
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

int run(int argc, char** argv) {
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
