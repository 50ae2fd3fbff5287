// The lanes of a rank on a GPU: one CUDA stream each, and events between them.
#pragma once

#include <cuda_runtime_api.h>

#include <array>

#include "ir/action.hpp"

namespace fem::exec {

// ExecutionError "cudaStreamCreate: out of memory" unless code is cudaSuccess.
void check_cuda(cudaError_t code, const char* call);

class CudaStream {
 public:
  CudaStream();  // on the current device; does not wait for the legacy default stream
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A point in a stream's work, without timing.
class CudaEvent {
 public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  CudaEvent(const CudaEvent&) = delete;

  void record(cudaStream_t stream);
  bool reached() const;  // ExecutionError where the stream's work failed
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaLanes {
 public:
  explicit CudaLanes(int device);  // makes it this thread's current device
  // Makes a device the calling thread's current one: CUDA keeps one for each thread, and an event belongs to it.
  static int use(int device);

  int device() const { return device_; }
  cudaStream_t stream(ir::Lane lane) const { return streams_[static_cast<std::size_t>(lane)].get(); }
  // What `waiter` is given from now on starts after all that `awaited` was given so far.
  void wait(ir::Lane waiter, ir::Lane awaited);

 private:
  int device_;
  std::array<CudaStream, ir::kLanes> streams_;
  std::array<CudaEvent, ir::kLanes> events_;
};

}  // namespace fem::exec
