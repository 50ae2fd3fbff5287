#include "executor/data/loader.hpp"

#include <random>
#include <thread>

#include "tests/data/support.hpp"

namespace fem::exec {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using Ids = std::vector<std::int64_t>;

constexpr std::int64_t kVocab = 50, kSeqLen = 6, kGlobalBatch = 8;

Ids values(const at::Tensor& tensor) {
  const auto* data = static_cast<const std::int64_t*>(tensor.const_data_ptr());
  return {data, data + tensor.numel()};
}

void expect_equal(const LoadedStep& found, const LoadedStep& expected) {
  EXPECT_EQ(found.batch, expected.batch);
  ASSERT_EQ(found.microbatches.size(), expected.microbatches.size());
  for (std::size_t m = 0; m < found.microbatches.size(); ++m) {
    const LoadedMicrobatch &f = found.microbatches[m], &e = expected.microbatches[m];
    EXPECT_EQ(f.samples, e.samples);
    EXPECT_EQ(values(f.batch.tokens), values(e.batch.tokens));
    EXPECT_EQ(values(f.batch.targets), values(e.batch.targets));
  }
}

class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() { write(400); }

  void write(std::int64_t tokens) {
    std::mt19937 random(4);
    Ids document;
    for (std::int64_t i = 0; i < tokens; ++i) document.push_back(static_cast<std::int64_t>(random() % kVocab));
    write_indexed_dataset(folder / "text", std::vector<Ids>{document}, kVocab);
    data = std::make_shared<IndexedDataset>(folder / "text", kVocab);
  }
  SampleStream stream(std::uint64_t seed = 1) { return SampleStream::training(*data, kSeqLen, kGlobalBatch, seed); }

  TemporaryFolder folder;
  std::shared_ptr<const IndexedDataset> data;
  LoaderOptions options{.share = {.micro = 2, .microbatches = 4}};
};

TEST_F(LoaderTest, GivesTheStepsOfTheStreamInOrder) {
  for (const int ahead : {1, 2, 5}) {
    options.ahead = ahead;
    Loader loader(data, stream(), options, 3 * kGlobalBatch);
    for (std::int64_t batch = 3; batch < 40; ++batch) {
      const LoadedStep& step = loader.next();
      expect_equal(step, load_step(*data, stream(), options, batch));
    }
    EXPECT_GE(loader.waited_seconds(), 0);
  }
}

TEST_F(LoaderTest, TensorsHoldTheSamplesAndTheirNextTokens) {
  Loader loader(data, stream(), options, 0);
  const LoadedStep& step = loader.next();
  ASSERT_EQ(step.microbatches.size(), 4u);
  for (const LoadedMicrobatch& microbatch : step.microbatches) {
    EXPECT_EQ(microbatch.batch.tokens.sizes(), (at::IntArrayRef{2, kSeqLen}));
    EXPECT_EQ(microbatch.batch.targets.scalar_type(), at::kLong);
    const Ids tokens = values(microbatch.batch.tokens), targets = values(microbatch.batch.targets);
    for (std::size_t row = 0; row < 2; ++row) {
      Ids expected(kSeqLen + 1);
      data->read(microbatch.samples[row] * kSeqLen, expected);
      for (std::size_t i = 0; i < kSeqLen; ++i) {
        EXPECT_EQ(tokens[row * kSeqLen + i], expected[i]);
        EXPECT_EQ(targets[row * kSeqLen + i], expected[i + 1]);
      }
    }
  }
}

TEST_F(LoaderTest, StagesLoadTheirPartAndAgreeOnTheSamples) {
  LoaderOptions first = options, last = options;
  first.targets = false;
  last.tokens = false;
  Loader on_first(data, stream(), first, 0), on_last(data, stream(), last, 0), other(data, stream(2), last, 0);
  for (int i = 0; i < 10; ++i) {
    const LoadedStep &a = on_first.next(), &b = on_last.next(), &c = other.next();
    EXPECT_EQ(samples_digest(a), samples_digest(b));
    EXPECT_NE(samples_digest(a), samples_digest(c)) << "another seed reads other samples";
    for (std::size_t m = 0; m < a.microbatches.size(); ++m) {
      EXPECT_EQ(a.microbatches[m].samples, b.microbatches[m].samples);
      EXPECT_TRUE(a.microbatches[m].batch.tokens.defined());
      EXPECT_FALSE(a.microbatches[m].batch.targets.defined());
      EXPECT_FALSE(b.microbatches[m].batch.tokens.defined());
      EXPECT_TRUE(b.microbatches[m].batch.targets.defined());
    }
  }
}

TEST_F(LoaderTest, DigestSeesOrderAndBatch) {
  LoadedStep step = load_step(*data, stream(), options, 0), moved = step;
  std::swap(moved.microbatches[0], moved.microbatches[1]);
  EXPECT_NE(samples_digest(step), samples_digest(moved));
  moved = step;
  moved.batch = 1;
  EXPECT_NE(samples_digest(step), samples_digest(moved));
}

TEST_F(LoaderTest, StopsAtOnceWhereverItStands) {
  for (int i = 0; i < 200; ++i) {
    Loader loader(data, stream(), options, 0);
    for (int n = i % 4; n > 0; --n) loader.next();
  }
}

TEST_F(LoaderTest, AnErrorOfTheThreadComesWithItsStep) {
  // The vocabulary shrinks so that one sample alone holds a bad id; the steps before that sample's are good.
  Ids document(400, 3);
  const SampleStream order = stream();
  constexpr std::int64_t kBadBatch = 5;
  document[static_cast<std::size_t>(order.sample(kBadBatch * kGlobalBatch + 3) * kSeqLen + 2)] = kVocab - 1;
  write_indexed_dataset(folder / "bad", std::vector<Ids>{document}, kVocab);
  const auto bad = std::make_shared<const IndexedDataset>(folder / "bad", kVocab - 1);
  Loader loader(bad, SampleStream::training(*bad, kSeqLen, kGlobalBatch, 1), options, 0);
  for (std::int64_t batch = 0; batch < kBadBatch; ++batch) EXPECT_EQ(loader.next().batch, batch);
  for (int again = 0; again < 3; ++again) {
    expect_error([&] { loader.next(); }, {"bad.bin: token ", "found 49, expected 0 to 48"});
  }
}

TEST_F(LoaderTest, RanksLoadAtTheSameTime) {
  constexpr int kRanks = 4;
  std::vector<std::vector<Ids>> samples(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      LoaderOptions mine = options;
      mine.share = {.micro = 1, .microbatches = 2, .dp = kRanks, .dp_rank = rank};
      Loader loader(data, stream(), mine, 0);
      for (int batch = 0; batch < 20; ++batch) {
        Ids ids;
        for (const LoadedMicrobatch& m : loader.next().microbatches) ids.push_back(m.samples[0]);
        samples[static_cast<std::size_t>(rank)].push_back(ids);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (std::int64_t batch = 0; batch < 20; ++batch) {
    for (std::int64_t slot = 0; slot < kGlobalBatch; ++slot) {
      const auto rank = static_cast<std::size_t>(slot / 2), m = static_cast<std::size_t>(slot % 2);
      EXPECT_EQ(samples[rank][static_cast<std::size_t>(batch)][m], stream().sample(batch * kGlobalBatch + slot));
    }
  }
}

TEST_F(LoaderTest, SizesThatDoNotFitAreNamed) {
  expect_error([&] { Loader(data, stream(), options, 12); }, {"position 12", "global batch 8"});
  expect_error([&] { Loader(data, stream(), options, -8); }, {"position -8"});
  options.share = {.micro = 2, .microbatches = 3, .dp = 2};
  expect_error([&] { Loader(data, stream(), options, 0); },
               {"dp 2 x microbatches 3 x micro 2 = 12", "global batch has 8"});
}

TEST_F(LoaderTest, EvaluationStepsArePadded) {
  write(1 + kSeqLen * 9 + 2);
  const SampleStream evaluation = SampleStream::evaluation(*data, kSeqLen, kGlobalBatch);
  ASSERT_EQ(evaluation.batches(), 2);
  std::int64_t targets = 0;
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    for (const LoadedMicrobatch& m : load_step(*data, evaluation, options, batch).microbatches) {
      for (const std::int64_t target : values(m.batch.targets)) targets += target != kIgnoredTarget;
    }
  }
  EXPECT_EQ(targets, kSeqLen * 9 + 2);
}

}  // namespace
}  // namespace fem::exec
