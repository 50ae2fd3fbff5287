#include "executor/comm/mpi_control.hpp"

#include <algorithm>

#include "executor/comm/mpi_support.hpp"

namespace fem::exec {

MpiControl::MpiControl(MPI_Comm world) {
  check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  receive();
}

void MpiControl::receive() {
  check_mpi(MPI_Irecv(incoming_.data(), static_cast<int>(incoming_.size()), MPI_CHAR, MPI_ANY_SOURCE, 0, comm_,
                      &request_),
            "MPI_Irecv");
}

void MpiControl::poll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || lingered_.load()) return;  // another thread is looking; or none shall
  int arrived = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&request_, &arrived, &status), "MPI_Test");
  if (!arrived) return;
  int length = 0;
  check_mpi(MPI_Get_count(&status, MPI_CHAR, &length), "MPI_Get_count");
  ++notices_;
  if (failure_.empty())
    failure_ = "rank " + std::to_string(status.MPI_SOURCE) + " failed: " +
               std::string(incoming_.data(), static_cast<std::size_t>(length));
  failed_.store(true);
  receive();
}

std::string MpiControl::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void MpiControl::announce(const std::string& reason) noexcept {
  std::lock_guard lock(mutex_);
  if (announced_.exchange(true)) return;
  outgoing_ = reason.substr(0, kText);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    sends_.emplace_back(MPI_REQUEST_NULL);
    // A peer that cannot be reached is beyond telling.
    MPI_Isend(outgoing_.data(), static_cast<int>(outgoing_.size()), MPI_CHAR, peer, 0, comm_, &sends_.back());
  }
  if (failure_.empty()) failure_ = "rank " + std::to_string(rank_) + " failed: " + reason;
  failed_.store(true);
}

void MpiControl::linger(std::chrono::milliseconds grace) {
  const auto end = std::chrono::steady_clock::now() + grace;
  while (!lingered_.load() && std::chrono::steady_clock::now() < end) {
    poll();
    {
      std::lock_guard lock(mutex_);
      int sent = 1;
      if (!sends_.empty())
        MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &sent, MPI_STATUSES_IGNORE);
      if (sent && notices_ >= size_ - 1) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  lingered_.store(true);
}

void MpiControl::close() {
  std::lock_guard lock(mutex_);
  if (request_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&request_);
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
  }
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

}  // namespace fem::exec
