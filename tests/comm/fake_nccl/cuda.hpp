// A fake stream: a thread that does what it is given, one thing after the other.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

struct CUstream_st {
  explicit CUstream_st(int of) : device(of), thread([this] { run(); }) {}
  ~CUstream_st();  // when all is done
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;
  void give(std::function<void()> work);
  void wait_until_idle();

  const int device;

 private:
  void run();

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;  // the first is under way
  bool closed = false;
  std::thread thread;
};
