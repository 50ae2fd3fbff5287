// fuzz_plans COUNT SEED: the cases SEED .. SEED + COUNT - 1; `fuzz_plans 1 N` repeats case N. Exit code 1 and the plan
// when a case fails.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "tests/fuzz/cases.hpp"

namespace {

bool read(const char* text, long& value) {
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  return error == std::errc() && stop == end && value >= 0;
}

}  // namespace

int main(int argc, char** argv) {
  long count = 0, seed = 0;
  if (argc != 3 || !read(argv[1], count) || !read(argv[2], seed)) {
    std::fprintf(stderr, "usage: fuzz_plans COUNT SEED\n");
    return 2;
  }
  fem::fuzz::Tally tally;
  for (long n = seed; n < seed + count; ++n) {
    // After a crash the last line tells where to look.
    if ((n - seed) % 1000 == 0) std::fprintf(stderr, "case %ld\n", n);
    const std::string fault = fem::fuzz::run_case(static_cast<std::uint32_t>(n), tally);
    if (fault.empty()) continue;
    std::fprintf(stderr, "case %ld: %s\n", n, fault.c_str());
    return 1;
  }
  std::printf("%ld cases: %ld plans verified and simulated, %ld deadlocks, %ld races, %ld other faults, %ld unparsed\n",
              count, tally.verified, tally.deadlocks, tally.races, tally.faults, tally.unparsed);
  const bool all = tally.verified && tally.deadlocks && tally.races && tally.faults && tally.unparsed;
  if (count < 1000 || all) return 0;
  std::fprintf(stderr, "one kind of outcome never came up: these cases do not test it\n");
  return 1;
}
