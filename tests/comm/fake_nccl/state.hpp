// What the two halves of the fake share.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tests/comm/fake_nccl/control.hpp"

namespace fake {

// Everything is under one mutex. The library stands in for a process-wide C interface, so this is process-wide too.
struct State {
  std::mutex mutex;
  int devices = 0;
  std::map<int, std::vector<Call>> calls;  // by device
  std::vector<std::string> violations;
  std::map<const void*, std::string> alive;  // what has to be given back
  struct Injection {
    int skip, code;
  };
  std::map<std::pair<int, std::string>, Injection> injections;
  std::map<std::pair<int, std::string>, int> delays;  // milliseconds
  std::map<int, int> async_errors;
};
State& state();

int current_device();  // of the calling thread

// With the mutex held by nobody: notes the call, and gives the code that a test wants it to return, or 0.
int enter(int device, Call call);
void violated(const std::string& rule);
void made(const void* what, const std::string& name);
void given_back(const void* what);  // a violation where it was not made, or twice

}  // namespace fake
