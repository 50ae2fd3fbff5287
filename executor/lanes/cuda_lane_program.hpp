// A rank's program on the lanes of a GPU: one host thread issues every batch on its lane's stream.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "executor/lanes/cuda_lanes.hpp"
#include "executor/lanes/thread_lanes.hpp"

namespace fem::exec {

class CudaLaneProgram {
 public:
  // Makes an event for each batch that another lane waits for; a run makes none. Both must outlive the object.
  CudaLaneProgram(const CudaLanes& lanes, const LaneTable& table);

  // Calls issue(batch, stream) for each batch in program order; it gives its work to the stream and returns. The stream
  // has been told to wait for what the batch waits for on other lanes. Nobody waits on the host: the caller
  // synchronises where it needs a result.
  void run(const std::function<void(const LaneTable::Batch&, cudaStream_t)>& issue);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  const CudaLanes& lanes_;
  const LaneTable& table_;
  std::vector<CudaEvent> events_;
  std::vector<std::uint32_t> event_of_;  // by batch; kNone: nobody waits for it
};

}  // namespace fem::exec
