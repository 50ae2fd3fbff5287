#include <gmock/gmock.h>

#include "executor/comm/mpi_launch.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

#ifdef FEM_TEST_HAVE_MPI

const std::vector<std::string> kCommand{"/opt/femrun", "a plan.txt", "--backend", "mpi"};

// Open MPI 4.1 mpirun(1): refuses root and more ranks than slots unless told, binds two ranks or fewer to a core each.
TEST(MpirunCommand, OpenMpi) {
  const auto words = mpirun_command("/usr/bin/mpirun", 4, kCommand, {.as_root = true, .open_mpi = true});
  EXPECT_EQ(words.front(), "/usr/bin/mpirun");
  EXPECT_THAT(words, Contains("--allow-run-as-root"));
  EXPECT_THAT(words, Contains("--oversubscribe"));
  const std::vector<std::string> tail(words.end() - 6, words.end());
  EXPECT_THAT(tail, ElementsAre("-n", "4", "/opt/femrun", "a plan.txt", "--backend", "mpi"));
  EXPECT_THAT(mpirun_command("mpirun", 4, kCommand, {.as_root = false, .open_mpi = true}),
              Not(Contains("--allow-run-as-root")));
}

TEST(MpirunCommand, OthersGetStandardOptionsAlone) {
  EXPECT_THAT(mpirun_command("mpirun", 2, kCommand, {.as_root = true, .open_mpi = false}),
              ElementsAre("mpirun", "-n", "2", "/opt/femrun", "a plan.txt", "--backend", "mpi"));
}

#else

TEST(MpirunCommand, IsMissing) {
  const char* argv[] = {"femrun"};
  try {
    launch_mpirun(1, argv, 2);
  } catch (const ExecutionError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("this build has no MPI"));
  }
}

#endif

}  // namespace
}  // namespace fem::exec
