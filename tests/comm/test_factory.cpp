#include <gmock/gmock.h>

#include "executor/comm/cuda_library.hpp"
#include "executor/comm/factory.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

ir::Settings mesh(int pp, int dp) {
  ir::Settings settings;
  settings.parallel.pp = pp;
  settings.parallel.dp = dp;
  return settings;
}

LaunchEnvironment launched(Launcher launcher, int world_size, const char* size_variable) {
  LaunchEnvironment launch;
  launch.launcher = launcher;
  launch.world_size = world_size;
  launch.size_variable = size_variable;
  return launch;
}

std::string error_of(Backend backend, const ir::Settings& settings, const LaunchEnvironment& launch) {
  try {
    make_world(backend, Topology(settings), launch);
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Factory, NamesOfBackends) {
  for (Backend backend : {Backend::local, Backend::mpi, Backend::nccl, Backend::null})
    EXPECT_EQ(backend_from_name(name(backend)), backend);
  EXPECT_THROW(backend_from_name("gloo"), ExecutionError);
}

TEST(Factory, LocalHoldsAllRanksAndNullOne) {
  const World local = make_world(Backend::local, Topology(mesh(2, 3)), {});
  ASSERT_EQ(local.size(), 6u);
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(local[static_cast<std::size_t>(rank)]->rank(), rank);
  const World null = make_world(Backend::null, Topology(mesh(2, 3)), {});
  ASSERT_EQ(null.size(), 1u);
  EXPECT_EQ(null[0]->size(), 6);
}

TEST(Factory, LocalUnderALauncherOfSeveralIsRefused) {
  EXPECT_THAT(error_of(Backend::local, mesh(1, 2), launched(Launcher::open_mpi, 2, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE=2 processes: use --backend mpi"));
  EXPECT_THAT(error_of(Backend::local, mesh(1, 2), launched(Launcher::torchrun, 2, "WORLD_SIZE")), HasSubstr("mpirun"));
  EXPECT_EQ(error_of(Backend::local, mesh(1, 2), launched(Launcher::slurm, 2, "SLURM_NTASKS")), "no error")
      << "a batch script runs one process";
}

TEST(Factory, TheLaunchedWorldIsTheMesh) {
  EXPECT_THAT(error_of(Backend::mpi, mesh(2, 2), launched(Launcher::open_mpi, 3, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE=3 ranks, but the plan's mesh has 4"));
  EXPECT_THAT(error_of(Backend::mpi, mesh(1, 2), launched(Launcher::torchrun, 2, "WORLD_SIZE")), HasSubstr("mpirun"));
}

// On a machine without a GPU: one clear error, whether or not the build has CUDA.
TEST(Factory, NcclNeedsAGpu) {
  if (gpu_available()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(error_of(Backend::nccl, mesh(1, 1), {}),
              AllOf(AnyOf(HasSubstr("no GPU: "), HasSubstr("this build has no CUDA")), HasSubstr("--device cpu")));
  EXPECT_THAT(error_of(Backend::nccl, mesh(1, 2), launched(Launcher::torchrun, 2, "WORLD_SIZE")), HasSubstr("mpirun"));
}

#ifdef FEM_TEST_HAVE_CUDA
// The library itself loads, with all that it links to: only the GPU is missing.
TEST(Factory, CudaLibraryLoads) {
  try {
    EXPECT_GE(cuda_device_count(), 1);
  } catch (const ExecutionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no GPU: "));
  }
}
#endif

}  // namespace
}  // namespace fem::exec
