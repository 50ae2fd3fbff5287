// Random plans, and what must hold of each.
#pragma once

#include <cstdint>
#include <string>

namespace fem::fuzz {

// How the cases ended; each must come up, else the cases test nothing.
struct Tally {
  long verified = 0;   // and simulated to the end
  long deadlocks = 0;  // the verifier's only complaint, and the simulator blocks
  long faults = 0;     // refused for something else; the simulator must survive them
  long races = 0;      // lane programs with a wait too few
  long unparsed = 0;   // damaged text that the parser refuses
};

// Makes the plan of that number and checks it: the text round trip, the verifier against the simulator on deadlock, the
// verifier against a search over all pairs on races. "" or what is wrong, with the plan.
std::string run_case(std::uint32_t number, Tally& tally);

}  // namespace fem::fuzz
