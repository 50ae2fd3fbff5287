// How the lanes of a plan run on a CPU.
#pragma once

#include <cstdint>

namespace fem::exec {

// Of a plan of level lane; the results are the same. Other plans have one lane.
enum class LaneMode : std::uint8_t {
  Inline,   // on the caller's thread, in program order
  Threads,  // a thread for each
};

}  // namespace fem::exec
