// Who started this process, from environments as torchrun, Open MPI, MPICH and Slurm set them.
#include <gmock/gmock.h>

#include <map>

#include "executor/comm/launch.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

LaunchEnvironment detect(const Variables& variables) {
  return detect_launch([&](const char* variable) -> std::optional<std::string> {
    const auto found = variables.find(variable);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string error_of(const Variables& variables) {
  try {
    detect(variables);
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return "no error";
}

Variables with(Variables all, const Variables& more) {
  for (const auto& [variable, value] : more) all[variable] = value;
  return all;
}

const Variables kTorchrun{{"RANK", "5"},          {"LOCAL_RANK", "1"},           {"WORLD_SIZE", "8"},
                          {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29411"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kMpich{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "3"}, {"MPI_LOCALNRANKS", "4"}};
const Variables kSlurm{{"SLURM_PROCID", "6"},
                       {"SLURM_LOCALID", "2"},
                       {"SLURM_STEP_NUM_TASKS", "8"},
                       {"SLURM_NTASKS", "16"},
                       {"SLURM_STEP_NODELIST", "gpu[003-005,7],login"}};

TEST(Launch, Alone) {
  const LaunchEnvironment launch = detect({{"PATH", "/bin"}, {"SLURM_JOB_ID", "17"}});
  EXPECT_EQ(launch.launcher, Launcher::none);
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.world_size, 1);
}

TEST(Launch, Torchrun) {
  const LaunchEnvironment launch = detect(kTorchrun);
  EXPECT_EQ(launch.launcher, Launcher::torchrun);
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.world_size, 8);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world_size, 4);
  EXPECT_EQ(launch.master_address, "10.0.0.7");
  EXPECT_EQ(launch.master_port, 29411);
  EXPECT_TRUE(launch.agent_store);
  EXPECT_EQ(launch.restart_count, 2);
  EXPECT_FALSE(detect(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).agent_store);
}

TEST(Launch, OpenMpi) {
  const LaunchEnvironment launch = detect(kOpenMpi);
  EXPECT_EQ(launch.launcher, Launcher::open_mpi);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.world_size, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world_size, 2);
}

TEST(Launch, Mpich) {
  const LaunchEnvironment launch = detect(kMpich);
  EXPECT_EQ(launch.launcher, Launcher::mpich);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.world_size, 4);
  EXPECT_EQ(launch.local_rank, 3);
  EXPECT_EQ(detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).local_rank, 1) << "the rank, where nothing else is known";
}

TEST(Launch, Slurm) {
  const LaunchEnvironment launch = detect(kSlurm);
  EXPECT_EQ(launch.launcher, Launcher::slurm);
  EXPECT_EQ(launch.rank, 6);
  EXPECT_EQ(launch.world_size, 8) << "SLURM_STEP_NUM_TASKS before SLURM_NTASKS";
  EXPECT_EQ(launch.local_rank, 2);
  EXPECT_EQ(launch.master_address, "gpu003");
  EXPECT_EQ(detect({{"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "16"}}).world_size, 16);
  EXPECT_EQ(detect(with(kSlurm, {{"MASTER_ADDR", "head"}})).master_address, "head");
}

TEST(Launch, TorchrunAndMpiWinOverSlurm) {
  EXPECT_EQ(detect(with(kSlurm, kTorchrun)).launcher, Launcher::torchrun);
  EXPECT_EQ(detect(with(kSlurm, kTorchrun)).rank, 5);
  EXPECT_EQ(detect(with(kSlurm, kOpenMpi)).rank, 3);
  EXPECT_EQ(detect(with(kSlurm, kMpich)).rank, 3);
}

TEST(Launch, AgreeingLaunchersAreFine) {
  const Variables both = with(kOpenMpi, {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}});
  EXPECT_EQ(detect(both).launcher, Launcher::torchrun);
  EXPECT_EQ(detect(with(kOpenMpi, kMpich)).launcher, Launcher::open_mpi);
}

TEST(Launch, ContradictionsNameBothVariablesAndValues) {
  EXPECT_EQ(error_of(with(kOpenMpi, {{"RANK", "2"}, {"WORLD_SIZE", "4"}})),
            "contradicting launch environment: RANK=2, but OMPI_COMM_WORLD_RANK=3");
  EXPECT_EQ(error_of(with(kOpenMpi, {{"RANK", "3"}, {"WORLD_SIZE", "5"}})),
            "contradicting launch environment: WORLD_SIZE=5, but OMPI_COMM_WORLD_SIZE=4");
  EXPECT_EQ(error_of(with(kMpich, {{"RANK", "0"}, {"WORLD_SIZE", "4"}})),
            "contradicting launch environment: RANK=0, but PMI_RANK=3");
  EXPECT_EQ(error_of(with(kOpenMpi, with(kMpich, {{"PMI_SIZE", "9"}}))),
            "contradicting launch environment: OMPI_COMM_WORLD_SIZE=4, but PMI_SIZE=9");
}

TEST(Launch, HalfAPairNamesTheOther) {
  EXPECT_EQ(error_of({{"RANK", "0"}}), "RANK=0 is set, but WORLD_SIZE is not");
  EXPECT_EQ(error_of({{"WORLD_SIZE", "2"}}), "WORLD_SIZE=2 is set, but RANK is not");
  EXPECT_EQ(error_of({{"OMPI_COMM_WORLD_SIZE", "2"}}),
            "OMPI_COMM_WORLD_SIZE=2 is set, but OMPI_COMM_WORLD_RANK is not");
  EXPECT_EQ(error_of({{"PMI_RANK", "1"}}), "PMI_RANK=1 is set, but PMI_SIZE is not");
}

TEST(Launch, ValuesMustBeNumbers) {
  struct Case {
    Variables base;
    const char* variable;
  };
  for (const Case& c : {Case{kTorchrun, "RANK"}, Case{kTorchrun, "WORLD_SIZE"}, Case{kTorchrun, "LOCAL_RANK"},
                        Case{kTorchrun, "LOCAL_WORLD_SIZE"}, Case{kTorchrun, "MASTER_PORT"},
                        Case{kTorchrun, "TORCHELASTIC_RESTART_COUNT"}, Case{kOpenMpi, "OMPI_COMM_WORLD_RANK"},
                        Case{kOpenMpi, "OMPI_COMM_WORLD_SIZE"}, Case{kOpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK"},
                        Case{kMpich, "PMI_RANK"}, Case{kMpich, "PMI_SIZE"}, Case{kSlurm, "SLURM_PROCID"},
                        Case{kSlurm, "SLURM_LOCALID"}, Case{kSlurm, "SLURM_STEP_NUM_TASKS"}})
    for (const char* value : {"", "x", "1x", " 1", "-1", "1.0", "99999999999999999999"}) {
      EXPECT_THAT(error_of(with(c.base, {{c.variable, value}})),
                  HasSubstr(std::string("environment variable ") + c.variable + "='" + value + "'"))
          << c.variable << "=" << value;
    }
  EXPECT_THAT(error_of(with(kTorchrun, {{"WORLD_SIZE", "0"}})),
              HasSubstr("WORLD_SIZE='0' is not a number of at least 1"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "65536"}})), HasSubstr("MASTER_PORT=65536 is not a port"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "maybe"}})),
              HasSubstr("TORCHELASTIC_USE_AGENT_STORE='maybe' is not True or False"));
}

TEST(Launch, RanksLieInTheirWorld) {
  EXPECT_EQ(error_of(with(kTorchrun, {{"RANK", "8"}})), "RANK=8 is outside the world of WORLD_SIZE=8");
  EXPECT_EQ(error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}})),
            "OMPI_COMM_WORLD_LOCAL_RANK=2 is outside the host's OMPI_COMM_WORLD_LOCAL_SIZE=2");
}

std::string check_error(const std::function<void()>& check) {
  try {
    check();
  } catch (const ExecutionError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Launch, WorldSizeMustBeThePlans) {
  EXPECT_EQ(check_error([] { check_world_size(detect(kTorchrun), 4); }),
            "torchrun started WORLD_SIZE=8 ranks, but the plan's mesh has 4");
  EXPECT_EQ(check_error([] { check_world_size(detect(kSlurm), 16); }),
            "Slurm's srun started SLURM_STEP_NUM_TASKS=8 ranks, but the plan's mesh has 16");
  EXPECT_EQ(check_error([] { check_world_size(detect(kOpenMpi), 4); }), "no error");
  EXPECT_EQ(check_error([] { check_world_size(detect({}), 4); }), "no error") << "no launcher: not started yet";
}

TEST(Launch, TorchrunWithoutAGpuNamesMpirun) {
  EXPECT_THAT(check_error([] { check_torchrun(detect(kTorchrun), false); }),
              HasSubstr("mpirun -n 8 femrun --backend mpi"));
  EXPECT_EQ(check_error([] { check_torchrun(detect(kTorchrun), true); }), "no error");
  EXPECT_EQ(check_error([] { check_torchrun(detect(kOpenMpi), false); }), "no error");
}

TEST(SlurmHosts, First) {
  EXPECT_EQ(first_slurm_host("node7"), "node7");
  EXPECT_EQ(first_slurm_host("n-1,n-2"), "n-1");
  EXPECT_EQ(first_slurm_host("gpu[003-005,7],login"), "gpu003");
  EXPECT_EQ(first_slurm_host("gpu[12,3-5]"), "gpu12");
  EXPECT_EQ(first_slurm_host("a[1-2]b[07,9]-ib"), "a1b07-ib");
  EXPECT_EQ(first_slurm_host("a.example.org,b"), "a.example.org");
  for (const char* bad : {"", ",a", "a[1-2", "a1]", "a[]", "a[x-2]"})
    EXPECT_THROW(first_slurm_host(bad), ExecutionError) << bad;
}

}  // namespace
}  // namespace fem::exec
