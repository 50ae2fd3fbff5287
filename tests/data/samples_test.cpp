#include "executor/data/samples.hpp"
#include "executor/units/unit.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>  // after our headers: it has a macro ACTION too

#include "tests/data/support.hpp"

namespace fem::exec {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

Ids permutation(std::int64_t count, std::uint64_t seed, std::uint64_t epoch) {
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(shuffled(i, count, seed, epoch));
  return ids;
}

// A corpus whose token i is i.
IndexedDataset counting_corpus(const TemporaryFolder& folder, std::int64_t tokens) {
  Ids document(static_cast<std::size_t>(tokens));
  std::iota(document.begin(), document.end(), 0);
  write_indexed_dataset(folder / "count", std::vector<Ids>{document}, tokens);
  return IndexedDataset(folder / "count", tokens);
}

Ids batch_of(const SampleStream& stream, std::int64_t batch) {
  Ids ids;
  for (std::int64_t i = 0; i < stream.global_batch(); ++i)
    ids.push_back(stream.sample(batch * stream.global_batch() + i));
  return ids;
}

// All microbatches of all data-parallel ranks, in rank order.
Ids batch_over_ranks(const SampleStream& stream, BatchShare share, std::int64_t batch) {
  Ids ids;
  for (share.dp_rank = 0; share.dp_rank < share.dp; ++share.dp_rank) {
    for (std::int64_t m = 0; m < share.microbatches; ++m) {
      const Ids part = microbatch_samples(stream, share, batch, m);
      EXPECT_EQ(static_cast<std::int64_t>(part.size()), share.micro);
      ids.insert(ids.end(), part.begin(), part.end());
    }
  }
  return ids;
}

TEST(Shuffle, IsAPermutationForEveryCount) {
  for (std::int64_t count = 1; count <= 130; ++count) {
    Ids ids = permutation(count, 3, 4);
    std::ranges::sort(ids);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(ids[static_cast<std::size_t>(i)], i) << "of " << count;
  }
}

// From a separate implementation of the documented rule in Python, whose splitmix64 gives the published
// e220a8397b1dcdaf.
TEST(Shuffle, GivesTheSameNumbersEverywhere) {
  EXPECT_THAT(permutation(10, 1, 0), ElementsAre(3, 4, 9, 1, 2, 7, 8, 0, 6, 5));
  EXPECT_THAT(permutation(10, 1, 1), ElementsAre(2, 3, 0, 1, 8, 4, 6, 9, 7, 5));
  EXPECT_THAT(permutation(10, 2, 0), ElementsAre(1, 9, 6, 2, 3, 7, 8, 4, 0, 5));
  constexpr std::int64_t kMany = 1'000'000'000'000;
  EXPECT_THAT((Ids{shuffled(0, kMany, 12345, 7), shuffled(1, kMany, 12345, 7), shuffled(2, kMany, 12345, 7),
                   shuffled(kMany - 1, kMany, 12345, 7)}),
              ElementsAre(114822297565, 836575420400, 804680747940, 506460551889));
}

// 24000 seeds over the 24 orders of four: 1000 each, and chi-squared with 23 degrees of freedom exceeds 49.7 once in a
// thousand times.
TEST(Shuffle, AllOrdersAreEquallyLikely) {
  std::map<Ids, int> counts;
  for (std::uint64_t seed = 0; seed < 24000; ++seed) ++counts[permutation(4, seed, 0)];
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7);
}

// Neighbours in the corpus must not stay neighbours: in a random order of 1000, about 2 of 999 pairs do.
TEST(Shuffle, NeighboursAreTornApart) {
  const Ids ids = permutation(1000, 5, 0);
  int neighbours = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) neighbours += std::abs(ids[i] - ids[i - 1]) == 1;
  EXPECT_LT(neighbours, 12);
}

TEST(Samples, EveryTokenButTheFirstIsATargetOnce) {
  const TemporaryFolder folder;
  const IndexedDataset data = counting_corpus(folder, 31);
  const SampleStream stream = SampleStream::training(data, 5, 2, 1);
  EXPECT_EQ(stream.samples(), 6);
  EXPECT_EQ(stream.batches(), 3);
  std::multiset<std::int64_t> targets_seen;
  for (std::int64_t sample = 0; sample < stream.samples(); ++sample) {
    Ids tokens(5), targets(5);
    read_sample(data, sample, 5, tokens, targets);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(targets[i], tokens[i] + 1) << "the token after";
    EXPECT_EQ(tokens[0], sample * 5);
    targets_seen.insert(targets.begin(), targets.end());
  }
  EXPECT_EQ(targets_seen.size(), 30u);
  EXPECT_EQ(std::set(targets_seen.begin(), targets_seen.end()).size(), 30u);
  EXPECT_EQ(*targets_seen.begin(), 1);
}

TEST(SampleStream, NoGapAndNoRepeatWithinAnEpochAndANewOrderInEach) {
  const TemporaryFolder folder;
  const IndexedDataset data = counting_corpus(folder, 4 * 53 + 3);
  for (const std::int64_t global_batch : {1, 4, 7, 53}) {
    const SampleStream stream = SampleStream::training(data, 4, global_batch, 9);
    EXPECT_EQ(stream.samples(), 53);
    std::vector<Ids> epochs;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      Ids order;
      for (std::int64_t b = 0; b < stream.batches(); ++b) {
        const Ids ids = batch_of(stream, epoch * stream.batches() + b);
        order.insert(order.end(), ids.begin(), ids.end());
      }
      const std::set distinct(order.begin(), order.end());
      EXPECT_EQ(static_cast<std::int64_t>(distinct.size()), 53 / global_batch * global_batch) << "a repeat";
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), 53);
      epochs.push_back(order);
    }
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_NE(epochs[1], epochs[2]);
    EXPECT_NE(batch_of(stream, 0), batch_of(SampleStream::training(data, 4, global_batch, 10), 0)) << "another seed";
  }
}

TEST(SampleStream, EveryLayoutReadsTheSameGlobalBatch) {
  const TemporaryFolder folder;
  const IndexedDataset data = counting_corpus(folder, 3 * 100 + 1);
  const SampleStream stream = SampleStream::training(data, 3, 24, 2);
  for (std::int64_t batch : {0, 3, 4, 17}) {
    const Ids expected = batch_of(stream, batch);
    for (const int dp : {1, 2, 3, 4, 6, 8, 12, 24}) {
      for (std::int64_t micro = 1; micro <= 24 / dp; ++micro) {
        if (24 / dp % micro != 0) continue;
        const BatchShare share{.micro = micro, .microbatches = 24 / dp / micro, .dp = dp};
        EXPECT_EQ(batch_over_ranks(stream, share, batch), expected) << "dp " << dp << " micro " << micro;
      }
    }
  }
}

TEST(SampleStream, TwiceTheMicrobatchesOnOneRankAreTheMicrobatchesOfTwo) {
  const TemporaryFolder folder;
  const IndexedDataset data = counting_corpus(folder, 2 * 40 + 1);
  const SampleStream stream = SampleStream::training(data, 2, 12, 1);
  const BatchShare one{.micro = 2, .microbatches = 6, .dp = 1};
  for (std::int64_t m = 0; m < 6; ++m) {
    const BatchShare two{.micro = 2, .microbatches = 3, .dp = 2, .dp_rank = static_cast<int>(m / 3)};
    EXPECT_EQ(microbatch_samples(stream, one, 1, m), microbatch_samples(stream, two, 1, m % 3));
  }
}

// A run that is stopped at any step and goes on with another number of ranks reads what an uninterrupted one reads.
TEST(SampleStream, ResumingAtAnotherDpHasNoGapAndNoRepeat) {
  const TemporaryFolder folder;
  const IndexedDataset data = counting_corpus(folder, 2 * 30 + 1);
  const auto open = [&] { return SampleStream::training(data, 2, 8, 77); };
  const auto share = [](int dp) { return BatchShare{.micro = 1, .microbatches = 8 / dp, .dp = dp}; };
  const SampleStream whole = open();
  for (const int before : {1, 2, 4, 8}) {
    for (const int after : {1, 2, 4, 8}) {
      for (std::int64_t stop = 0; stop <= 7; ++stop) {
        Ids read, expected;
        for (std::int64_t batch = 0; batch < 9; ++batch) {
          const Ids ids = batch_over_ranks(open(), share(batch < stop ? before : after), batch);
          read.insert(read.end(), ids.begin(), ids.end());
          const Ids uninterrupted = batch_of(whole, batch);
          expected.insert(expected.end(), uninterrupted.begin(), uninterrupted.end());
        }
        ASSERT_EQ(read, expected) << before << " ranks, stopped at " << stop << ", then " << after;
      }
    }
  }
}

TEST(SampleStream, TooLittleTextIsAnErrorWithFileCountAndNeed) {
  const TemporaryFolder folder;
  const IndexedDataset data = counting_corpus(folder, 40);
  expect_error([&] { SampleStream::training(data, 10, 4, 1); },
               {"count.bin", "40 tokens give 3 samples of 10 + 1 tokens", "one global batch needs 4"});
  expect_error([&] { SampleStream::training(data, 40, 1, 1); }, {"40 tokens give 0 samples"});
  EXPECT_EQ(SampleStream::training(data, 39, 1, 1).samples(), 1) << "seq_len + 1 tokens are one sample";
  const IndexedDataset one = counting_corpus(folder, 1);
  expect_error([&] { SampleStream::evaluation(one, 4, 2); }, {"count.bin", "1 tokens give no target", "at least 2"});
}

TEST(SampleStream, EvaluationCountsEveryTargetOnceAndPadsTheRest) {
  const TemporaryFolder folder;
  for (std::int64_t tokens = 2; tokens <= 40; ++tokens) {
    const IndexedDataset data = counting_corpus(folder, tokens);
    const SampleStream stream = SampleStream::evaluation(data, 4, 3);
    std::multiset<std::int64_t> targets_seen;
    for (std::int64_t batch = 0; batch < stream.batches(); ++batch) {
      bool any = false;
      for (const std::int64_t sample : batch_of(stream, batch)) {
        Ids inputs(4, -7), targets(4, -7);
        read_sample(data, sample, 4, inputs, targets);
        for (std::size_t i = 0; i < 4; ++i) {
          if (targets[i] == kIgnoredTarget) continue;
          EXPECT_EQ(targets[i], inputs[i] + 1);
          targets_seen.insert(targets[i]);
          any = true;
        }
        EXPECT_TRUE(std::ranges::all_of(inputs, [&](std::int64_t id) { return id >= 0 && id < tokens; }));
      }
      EXPECT_TRUE(any) << "a batch of padding alone";
    }
    Ids expected(static_cast<std::size_t>(tokens - 1));
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(Ids(targets_seen.begin(), targets_seen.end()), expected) << tokens << " tokens";
    expect_error([&] { stream.sample(stream.batches() * 3); },
                 {"evaluation batch " + std::to_string(stream.batches()) + " of " + std::to_string(stream.batches())});
  }
}

}  // namespace
}  // namespace fem::exec
