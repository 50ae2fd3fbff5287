// Point-to-point batches of one lane over MPI.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"

namespace fem::exec {

// A batch sends each peer one small message that lists the tags and sizes of its halves to that peer, and the data with
// MPI_Issend, which completes only when it is being received. The receiver meets listed halves by tag. When it still
// lacks one though the peer's list has others left, no later list can help, since the peer's batch waits for those: a
// mismatch.
class MpiExchange {
 public:
  MpiExchange() = default;
  void open(MPI_Comm world);  // collective
  void close();               // collective

  void start(std::span<const P2pHalf> halves);
  // True when all halves are done. ExecutionError on a mismatch.
  bool progress();
  // The halves that are not done, for messages.
  std::string unfinished() const;
  // After a failure: stops receives, so that as little as possible still arrives in the caller's buffers.
  void cancel();

 private:
  struct Listed {
    std::int64_t tag;
    std::uint64_t bytes;
  };
  struct Arriving {
    Listed listed;
    std::uint32_t sequence;
  };
  struct Pending {
    P2pHalf half;
    bool posted = false;  // its MPI request exists: requests_[request]
    std::size_t request = 0;
  };

  void start_sends(std::span<const P2pHalf> halves, int peer);
  void match();
  bool read_list(int peer);
  void post_receive(Pending& pending);
  static int data_tag(std::uint32_t sequence);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::vector<std::uint32_t> sent_, listed_;    // halves so far, by peer: their place numbers the data messages
  std::vector<std::deque<Arriving>> arriving_;  // by peer: listed, not yet received
  std::vector<Pending> pending_;
  std::size_t unposted_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<std::vector<Listed>> lists_;  // outgoing, one per peer of the batch; kept for their memory
  std::size_t lists_used_ = 0;
  std::vector<Listed> incoming_;
};

}  // namespace fem::exec
