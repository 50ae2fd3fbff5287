// Small things that every use of MPI needs.
#pragma once

#include <mpi.h>

#include <cstddef>

namespace fem::exec {

// ExecutionError "MPI_Issend: MPI_ERR_COUNT: ..." unless code is MPI_SUCCESS.
void check_mpi(int code, const char* call);

// `bytes` bytes as a count and a datatype: MPI counts are ints, so above INT_MAX one element of a derived type stands
// for all of them.
class MpiBytes {
 public:
  explicit MpiBytes(std::size_t bytes);
  ~MpiBytes();
  MpiBytes(const MpiBytes&) = delete;
  MpiBytes& operator=(const MpiBytes&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace fem::exec
