// The part of CUDA's runtime that the communicator uses, on the CPU: device memory is host memory.
#include "tests/comm/fake_nccl/cuda.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/comm/fake_nccl/state.hpp"

using fake::state;

// What cudaEventRecord leaves in a stream. The stream may reach it after the event is gone.
struct CUevent_st {
  int device;
  std::shared_ptr<std::atomic<bool>> point;
};

namespace fake {
namespace {

thread_local int own_device = 0;
thread_local cudaStream_t own_last = nullptr;  // stream that got work

std::set<cudaStream_t>& streams() {  // under the state's mutex
  static std::set<cudaStream_t> all;
  return all;
}

cudaError_t note(const char* name, cudaStream_t stream = nullptr, int peer = -1, long long bytes = -1) {
  return static_cast<cudaError_t>(
      enter(stream ? stream->device : own_device, {.name = name, .peer = peer, .bytes = bytes, .stream = stream}));
}

}  // namespace

int current_device() { return own_device; }

void finish() {
  if (own_last) own_last->wait_until_idle();
}

}  // namespace fake

CUstream_st::~CUstream_st() {
  {
    std::lock_guard lock(mutex);
    closed = true;
  }
  changed.notify_all();
  thread.join();
}

void CUstream_st::give(std::function<void()> work) {
  fake::own_last = this;
  std::lock_guard lock(mutex);
  queue.push_back(std::move(work));
  changed.notify_all();
}

void CUstream_st::wait_until_idle() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return queue.empty(); });
}

void CUstream_st::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return closed || !queue.empty(); });
    if (queue.empty()) return;
    lock.unlock();
    queue.front()();  // pushing to a deque's end leaves its first element where it is
    lock.lock();
    queue.pop_front();
    changed.notify_all();
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  std::lock_guard lock(state().mutex);
  *count = state().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  fake::own_device = device;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorNotReady ? "not ready" : code == cudaErrorMemoryAllocation ? "out of memory" : "fake error";
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t code = fake::note("cudaStreamCreateWithFlags")) return code;
  *stream = new CUstream_st(fake::own_device);
  fake::made(*stream, "stream");
  std::lock_guard lock(state().mutex);
  fake::streams().insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const cudaError_t code = fake::note("cudaStreamDestroy", stream)) return code;
  {
    std::lock_guard lock(state().mutex);
    fake::streams().erase(stream);
  }
  fake::given_back(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t code = fake::note("cudaEventCreateWithFlags")) return code;
  *event = new CUevent_st{fake::own_device, nullptr};
  fake::made(*event, "event");
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  fake::given_back(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t code = fake::note("cudaEventRecord", stream)) return code;
  if (event->device != stream->device) {
    fake::violated("an event of device " + std::to_string(event->device) + " is recorded in a stream of device " +
                   std::to_string(stream->device));
    return cudaErrorInvalidResourceHandle;
  }
  event->point = std::make_shared<std::atomic<bool>>(false);
  stream->give([point = event->point] {
    point->store(true);
    point->notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  {
    std::lock_guard lock(state().mutex);  // asked for all the time, so not among the calls
    const auto injection = state().injections.find({event->device, "cudaEventQuery"});
    if (injection != state().injections.end()) return static_cast<cudaError_t>(injection->second.code);
  }
  return !event->point || event->point->load() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t code = fake::note("cudaStreamWaitEvent", stream)) return code;
  if (event->point) stream->give([point = event->point] { point->wait(false); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (const cudaError_t code = fake::note("cudaMemcpyAsync", stream, -1, static_cast<long long>(bytes))) return code;
  stream->give([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (const cudaError_t code = fake::note("cudaMalloc", nullptr, -1, static_cast<long long>(bytes))) return code;
  *data = std::malloc(bytes);
  fake::made(*data, "memory");
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  fake::given_back(data);
  std::free(data);
  return cudaSuccess;
}

// Waits for the current device's streams.
cudaError_t cudaDeviceSynchronize() {
  std::set<cudaStream_t> all;
  {
    std::lock_guard lock(state().mutex);
    all = fake::streams();
  }
  for (const cudaStream_t stream : all)
    if (stream->device == fake::own_device) stream->wait_until_idle();
  return cudaSuccess;
}
