#include "executor/comm/mpi_support.hpp"

#include <limits>
#include <string>

#include "executor/error.hpp"

namespace fem::exec {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw ExecutionError(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

MpiBytes::MpiBytes(std::size_t bytes) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<int>::max());
  if (bytes <= kMost) {
    count_ = static_cast<int>(bytes);
    return;
  }
  // Blocks of 1 GiB, then the rest, as one element.
  constexpr std::size_t kBlock = std::size_t{1} << 30;
  const int lengths[] = {static_cast<int>(bytes / kBlock), static_cast<int>(bytes % kBlock)};
  const MPI_Aint starts[] = {0, static_cast<MPI_Aint>(bytes - bytes % kBlock)};
  MPI_Datatype block;
  check_mpi(MPI_Type_contiguous(static_cast<int>(kBlock), MPI_BYTE, &block), "MPI_Type_contiguous");
  const MPI_Datatype types[] = {block, MPI_BYTE};
  check_mpi(MPI_Type_create_struct(2, lengths, starts, types, &type_), "MPI_Type_create_struct");
  check_mpi(MPI_Type_free(&block), "MPI_Type_free");
  check_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
  count_ = 1;
}

MpiBytes::~MpiBytes() {
  if (type_ != MPI_BYTE) MPI_Type_free(&type_);
}

}  // namespace fem::exec
