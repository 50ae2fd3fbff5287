#include "executor/lanes/cuda_lane_program.hpp"

#include <span>

namespace fem::exec {

CudaLaneProgram::CudaLaneProgram(const CudaLanes& lanes, const LaneTable& table)
    : lanes_(lanes), table_(table), event_of_(table.batches.size(), kNone) {
  for (std::size_t b = 0; b < table.batches.size(); ++b) {
    if (table.program->actions[table.batches[b].action].label == 0) continue;
    event_of_[b] = static_cast<std::uint32_t>(events_.size());
    events_.emplace_back();
  }
}

void CudaLaneProgram::run(const std::function<void(const LaneTable::Batch&, cudaStream_t)>& issue) {
  for (std::size_t b = 0; b < table_.batches.size(); ++b) {
    const LaneTable::Batch& batch = table_.batches[b];
    const cudaStream_t stream = lanes_.stream(batch.lane);
    // Waits point backward in the program: the event they name has been recorded in this run.
    for (const ir::Wait& wait : std::span(table_.program->waits).subspan(batch.first_wait, batch.waits)) {
      const std::uint32_t awaited = table_.by_lane[ir::lane_index(wait.lane)][wait.count - 1];
      check_cuda(cudaStreamWaitEvent(stream, events_[event_of_[awaited]].get(), 0), "cudaStreamWaitEvent");
    }
    issue(batch, stream);
    if (event_of_[b] != kNone) events_[event_of_[b]].record(stream);
  }
}

}  // namespace fem::exec
