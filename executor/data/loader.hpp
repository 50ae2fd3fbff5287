// Loads the microbatches of coming steps in a thread of its own while the step at hand computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/data/samples.hpp"
#include "executor/units/unit.hpp"

namespace fem::exec {

struct LoaderOptions {
  BatchShare share;
  bool tokens = true, targets = true;  // what this rank needs: the first stage tokens, the last stage targets
  int ahead = 2;                       // steps that may lie ready, at least 1
};

struct LoadedMicrobatch {
  Microbatch batch;                   // int64 [micro, seq_len]; a member that was not asked for is undefined
  std::vector<std::int64_t> samples;  // [micro], whatever was asked for: stages compare them
};

// All microbatches of one step of one rank.
struct LoadedStep {
  std::int64_t batch = 0;  // number of the global batch in the stream
  std::vector<LoadedMicrobatch> microbatches;
};

// A number by which two ranks can tell that they read the same samples in the same order.
std::uint64_t samples_digest(const LoadedStep& step);

// One reader, one consumer. Destruction stops the thread, also while it is loading or waiting.
class Loader {
 public:
  // `consumed`: samples of the stream before the first step, a multiple of the global batch.
  // Errors: the share does not multiply to the global batch, or `consumed` is no multiple of it (both values named).
  Loader(std::shared_ptr<const IndexedDataset> data, const SampleStream& stream, const LoaderOptions& options,
         std::int64_t consumed);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step. The tensors are reused: valid until the call after this one. Throws what the thread met, once the
  // steps before it are consumed, and again at every later call.
  const LoadedStep& next();

  double waited_seconds() const;  // total time that next() had to wait

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A step of the stream loaded in the calling thread, for evaluation and tests.
LoadedStep load_step(const IndexedDataset& data, const SampleStream& stream, const LoaderOptions& options,
                     std::int64_t batch);

}  // namespace fem::exec
