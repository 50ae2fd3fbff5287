// Stands in for mpi_*.cpp in a build without MPI.
#include "executor/comm/mpi_communicator.hpp"
#include "executor/comm/mpi_launch.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

[[noreturn]] void no_mpi() {
  throw ExecutionError("this build has no MPI: install an MPI compiler (libopenmpi-dev) and configure again, "
                       "or use --backend local");
}

}  // namespace

MpiRuntime::MpiRuntime() { no_mpi(); }
MpiRuntime::~MpiRuntime() = default;

std::unique_ptr<Communicator> make_mpi_communicator(const Topology&, const CommOptions&) { no_mpi(); }

std::vector<std::string> mpirun_command(const std::string&, int, std::span<const std::string>, MpirunOptions) {
  no_mpi();
}

void launch_mpirun(int, const char* const*, int) { no_mpi(); }

}  // namespace fem::exec
