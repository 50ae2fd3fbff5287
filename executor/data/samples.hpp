// Which samples a step reads: a pure function of the corpus, the seed and the position, the same on every rank.
//
// Sample i is tokens [i * seq_len, i * seq_len + seq_len] of the corpus, seq_len + 1 of them: the inputs are the first
// seq_len, the targets the last seq_len. Neighbours share one token, so that every token but the corpus's first is a
// target of exactly one sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/data/indexed_dataset.hpp"

namespace fem::exec {

// The image of `index` under a permutation of 0 .. count-1 that depends on (seed, epoch): the swap-or-not shuffle
// (Hoang, Morris, Rogaway: An Enciphering Scheme Based on a Card Shuffle, CRYPTO 2012), keyed by splitmix64.
// Needs no memory and no state, and gives the same on every machine.
std::int64_t shuffled(std::int64_t index, std::int64_t count, std::uint64_t seed, std::uint64_t epoch);

// A slot of an evaluation batch past the end of the data: its targets are all ignored.
inline constexpr std::int64_t kPaddingSample = -1;

// The samples of a run in the order of training or evaluation. The only state is a position: the number of samples
// consumed before the step, a multiple of the global batch. pp, dp and the microbatch size do not enter.
class SampleStream {
 public:
  // Endless; every epoch is shuffled anew and its incomplete last global batch is dropped.
  // Error when the corpus has fewer whole samples than one global batch: names file, samples and need.
  static SampleStream training(const IndexedDataset& data, std::int64_t seq_len, std::int64_t global_batch,
                               std::uint64_t seed);
  // The corpus from its start in order, the same at every evaluation. The last sample may be cut short and the last
  // batch padded: ignored targets fill both. Error when the corpus has no target at all.
  static SampleStream evaluation(const IndexedDataset& data, std::int64_t seq_len, std::int64_t global_batch);

  std::int64_t samples() const { return samples_; }  // of one epoch, before the incomplete batch is dropped
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t global_batch() const { return global_batch_; }
  std::int64_t batches() const { return batches_; }  // whole global batches of one epoch; evaluation: all batches

  // The sample at `position` of the stream, 0 <= position. Evaluation: position < batches() * global_batch().
  std::int64_t sample(std::int64_t position) const;

 private:
  SampleStream() = default;
  bool shuffle_ = false;
  std::int64_t samples_ = 0, seq_len_ = 0, global_batch_ = 0, batches_ = 0;
  std::uint64_t seed_ = 0;
};

// A data-parallel rank's part of each global batch. global_batch = dp * microbatches * micro.
struct BatchShare {
  std::int64_t micro = 1, microbatches = 1;
  int dp = 1, dp_rank = 0;

  // Where microbatch m of this rank starts in the global batch; it has `micro` consecutive slots.
  // dp = 1 with 2 x n microbatches and dp = 2 with n read the same samples in the same microbatches.
  std::int64_t first_slot(std::int64_t m) const { return (dp_rank * microbatches + m) * micro; }
};

// The samples of microbatch m of global batch number `batch`, [micro].
std::vector<std::int64_t> microbatch_samples(const SampleStream& stream, const BatchShare& share, std::int64_t batch,
                                             std::int64_t m);

// Fills one row of [seq_len] inputs and/or targets (either may be empty). Past the end of the corpus, and in padding
// samples, inputs are 0 and targets kIgnoredTarget.
void read_sample(const IndexedDataset& data, std::int64_t sample, std::int64_t seq_len, std::span<std::int64_t> tokens,
                 std::span<std::int64_t> targets);

}  // namespace fem::exec
