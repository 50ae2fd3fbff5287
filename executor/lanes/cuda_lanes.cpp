#include "executor/lanes/cuda_lanes.hpp"

#include <string>
#include <utility>

#include "executor/error.hpp"

namespace fem::exec {

void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw ExecutionError(std::string(call) + ": " + cudaGetErrorString(code));
}

CudaStream::CudaStream() {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
CudaStream::~CudaStream() { cudaStreamDestroy(stream_); }

CudaEvent::CudaEvent() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}
CudaEvent::~CudaEvent() {
  if (event_) cudaEventDestroy(event_);
}
CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

void CudaEvent::record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }

bool CudaEvent::reached() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  check_cuda(state, "cudaEventQuery");
  return true;
}

int CudaLanes::use(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  return device;
}

CudaLanes::CudaLanes(int device) : device_(use(device)) {}

void CudaLanes::wait(ir::Lane waiter, ir::Lane awaited) {
  CudaEvent& event = events_[static_cast<std::size_t>(awaited)];
  event.record(stream(awaited));
  check_cuda(cudaStreamWaitEvent(stream(waiter), event.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace fem::exec
