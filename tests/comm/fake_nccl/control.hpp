// What a test tells the fake NCCL and the fake CUDA, and what it learns from them.
#pragma once

#include <string>
#include <vector>

namespace fake {

// A call that came in. Every rank is a device; several communicators of one split have one number.
struct Call {
  std::string name;      // "ncclSend"
  int comm = -1;         // -1: a call without a communicator
  int peer = -1;         // or root; of ncclCommSplit: the colour
  long long bytes = -1;  // that a member sends; of ncclCommSplit: the key
  const void* stream = nullptr;
  int group = -1;        // which ncclGroupStart of this device it came after; -1: outside of groups
};

// Forgets everything, and gives the machine so many devices. No thread may be inside the library.
void reset(int devices);

std::vector<Call> calls(int device);  // in order
// Broken rules, each a sentence. A test expects none unless it breaks them on purpose.
std::vector<std::string> violations();
// What was made and never given back: communicators, streams, events, memory.
std::vector<std::string> leaks();

// Of the calls of that name from now on, that device's number `skip` returns `code` and does nothing else.
void inject(int device, const std::string& name, int code, int skip = 0);
// From now on that device's calls of that name take so long on the host before they begin.
void delay(int device, const std::string& name, int milliseconds);
// Waits until all that was given to the stream is done to which the calling thread gave work last.
void finish();
// From now on that device's communicators report this ncclResult_t as their asynchronous error.
void set_async_error(int device, int code);

}  // namespace fake
