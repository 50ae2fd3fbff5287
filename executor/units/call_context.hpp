// Where in a run a call of a unit stands, as far as its numbers depend on that.
#pragma once

#include <cstdint>

namespace fem::exec {

struct CallContext {
  bool train = false;       // dropout drops
  std::int64_t step = 0;    // of the run
  std::int64_t sample = 0;  // the microbatch's first sample, counted in the global batch of the step
  float loss_scale = 1;     // factor on the gradient of the loss, a power of two; the head's, in fp16 alone
};

}  // namespace fem::exec
