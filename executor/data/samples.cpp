#include "executor/data/samples.hpp"

#include <algorithm>
#include <bit>

#include "executor/error.hpp"
#include "executor/units/unit.hpp"

namespace fem::exec {
namespace {

// The output function of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::int64_t shuffled(std::int64_t index, std::int64_t count, std::uint64_t seed, std::uint64_t epoch) {
  FEM_CHECK(index >= 0 && index < count, "index " + std::to_string(index) + " of " + std::to_string(count));
  const auto n = static_cast<std::uint64_t>(count);
  auto x = static_cast<std::uint64_t>(index);
  const std::uint64_t key = splitmix64(splitmix64(seed) + epoch);
  // O(log n) rounds mix well (the paper's result); the constant term serves small n.
  const int rounds = 8 * std::bit_width(n) + 16;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t round_key = splitmix64(key + static_cast<std::uint64_t>(round));
    const std::uint64_t pivot = round_key % n;
    const std::uint64_t partner = pivot >= x ? pivot - x : pivot + n - x;
    // Both partners look at the same bit, so that either both swap or none does.
    if (splitmix64(round_key ^ splitmix64(std::max(x, partner))) >> 63) x = partner;
  }
  return static_cast<std::int64_t>(x);
}

SampleStream SampleStream::training(const IndexedDataset& data, std::int64_t seq_len, std::int64_t global_batch,
                                    std::uint64_t seed) {
  FEM_CHECK(seq_len > 0 && global_batch > 0, "seq_len " + std::to_string(seq_len) + ", batch.global " +
                                                 std::to_string(global_batch) + ": both must be positive");
  SampleStream stream;
  stream.shuffle_ = true;
  stream.samples_ = std::max<std::int64_t>(data.tokens() - 1, 0) / seq_len;
  stream.seq_len_ = seq_len;
  stream.global_batch_ = global_batch;
  stream.batches_ = stream.samples_ / global_batch;
  stream.seed_ = seed;
  if (stream.batches_ == 0) {
    throw ExecutionError(data.bin_path() + ": " + std::to_string(data.tokens()) + " tokens give " +
                         std::to_string(stream.samples_) + " samples of " + std::to_string(seq_len) +
                         " + 1 tokens, but one global batch needs " + std::to_string(global_batch));
  }
  return stream;
}

SampleStream SampleStream::evaluation(const IndexedDataset& data, std::int64_t seq_len, std::int64_t global_batch) {
  FEM_CHECK(seq_len > 0 && global_batch > 0, "seq_len " + std::to_string(seq_len) + ", batch.global " +
                                                 std::to_string(global_batch) + ": both must be positive");
  if (data.tokens() < 2) {
    throw ExecutionError(data.bin_path() + ": " + std::to_string(data.tokens()) +
                         " tokens give no target, but an evaluation needs at least 2 tokens");
  }
  SampleStream stream;
  stream.samples_ = (data.tokens() - 2) / seq_len + 1;
  stream.seq_len_ = seq_len;
  stream.global_batch_ = global_batch;
  stream.batches_ = (stream.samples_ - 1) / global_batch + 1;
  return stream;
}

std::int64_t SampleStream::sample(std::int64_t position) const {
  FEM_CHECK(position >= 0, "position " + std::to_string(position) + " in the stream of samples");
  if (shuffle_) {
    const std::int64_t batch = position / global_batch_, slot = position % global_batch_;
    const std::int64_t epoch = batch / batches_;
    return shuffled(batch % batches_ * global_batch_ + slot, samples_, seed_, static_cast<std::uint64_t>(epoch));
  }
  FEM_CHECK(position < batches_ * global_batch_,
            "evaluation batch " + std::to_string(position / global_batch_) + " of " + std::to_string(batches_));
  return position < samples_ ? position : kPaddingSample;
}

std::vector<std::int64_t> microbatch_samples(const SampleStream& stream, const BatchShare& share, std::int64_t batch,
                                             std::int64_t m) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(share.micro));
  const std::int64_t first = batch * stream.global_batch() + share.first_slot(m);
  for (std::int64_t i = 0; i < share.micro; ++i) samples[static_cast<std::size_t>(i)] = stream.sample(first + i);
  return samples;
}

void read_sample(const IndexedDataset& data, std::int64_t sample, std::int64_t seq_len, std::span<std::int64_t> tokens,
                 std::span<std::int64_t> targets) {
  const auto fill = [&](std::span<std::int64_t> row, std::int64_t first, std::int64_t padding) {
    if (row.empty()) return;
    FEM_CHECK(static_cast<std::int64_t>(row.size()) == seq_len,
              "row of " + std::to_string(row.size()) + " tokens, seq_len " + std::to_string(seq_len));
    const std::int64_t there =
        sample == kPaddingSample ? 0 : std::clamp<std::int64_t>(data.tokens() - first, 0, seq_len);
    const auto split = static_cast<std::size_t>(there);
    if (there > 0) data.read(first, row.first(split));
    std::ranges::fill(row.subspan(split), padding);
  };
  fill(tokens, sample * seq_len, 0);
  fill(targets, sample * seq_len + 1, kIgnoredTarget);
}

}  // namespace fem::exec
