#include "tests/comm/fake_nccl/state.hpp"

#include <chrono>
#include <thread>

namespace fake {

State& state() {
  static State state;
  return state;
}

void reset(int devices) {
  std::lock_guard lock(state().mutex);
  state().devices = devices;
  state().calls.clear();
  state().violations.clear();
  state().alive.clear();
  state().injections.clear();
  state().delays.clear();
  state().async_errors.clear();
}

std::vector<Call> calls(int device) {
  std::lock_guard lock(state().mutex);
  return state().calls[device];
}

std::vector<std::string> violations() {
  std::lock_guard lock(state().mutex);
  return state().violations;
}

std::vector<std::string> leaks() {
  std::lock_guard lock(state().mutex);
  std::vector<std::string> names;
  for (const auto& [what, name] : state().alive) names.push_back(name);
  return names;
}

void inject(int device, const std::string& name, int code, int skip) {
  std::lock_guard lock(state().mutex);
  state().injections[{device, name}] = {skip, code};
}

void set_async_error(int device, int code) {
  std::lock_guard lock(state().mutex);
  state().async_errors[device] = code;
}

void delay(int device, const std::string& name, int milliseconds) {
  std::lock_guard lock(state().mutex);
  state().delays[{device, name}] = milliseconds;
}

int enter(int device, Call call) {
  std::unique_lock lock(state().mutex);
  const auto delayed = state().delays.find({device, call.name});
  if (delayed != state().delays.end()) {
    const std::chrono::milliseconds time(delayed->second);
    lock.unlock();
    std::this_thread::sleep_for(time);
    lock.lock();
  }
  const auto injection = state().injections.find({device, call.name});
  state().calls[device].push_back(std::move(call));
  if (injection == state().injections.end() || injection->second.skip-- > 0) return 0;
  const int code = injection->second.code;
  state().injections.erase(injection);
  return code;
}

void violated(const std::string& rule) {
  std::lock_guard lock(state().mutex);
  state().violations.push_back(rule);
}

void made(const void* what, const std::string& name) {
  std::lock_guard lock(state().mutex);
  state().alive[what] = name;
}

void given_back(const void* what) {
  {
    std::lock_guard lock(state().mutex);
    if (state().alive.erase(what) == 1) return;
  }
  violated("something is given back that is not there, or twice");
}

}  // namespace fake
