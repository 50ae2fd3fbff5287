#include "executor/data/loader.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <ATen/ops/empty.h>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

LoadedStep allocate_step(const SampleStream& stream, const LoaderOptions& options) {
  const std::array<std::int64_t, 2> shape{options.share.micro, stream.seq_len()};
  LoadedStep step;
  step.microbatches.resize(static_cast<std::size_t>(options.share.microbatches));
  for (LoadedMicrobatch& microbatch : step.microbatches) {
    microbatch.samples.resize(static_cast<std::size_t>(options.share.micro));
    if (options.tokens) microbatch.batch.tokens = at::empty(shape, at::kLong);
    if (options.targets) microbatch.batch.targets = at::empty(shape, at::kLong);
  }
  return step;
}

// Row i of a [micro, seq_len] tensor; empty where the tensor is not wanted.
std::span<std::int64_t> row_of(const at::Tensor& tensor, std::size_t i, std::int64_t seq_len) {
  if (!tensor.defined()) return {};
  const auto length = static_cast<std::size_t>(seq_len);
  return {static_cast<std::int64_t*>(tensor.mutable_data_ptr()) + i * length, length};
}

void fill_microbatch(const IndexedDataset& data, const SampleStream& stream, const LoaderOptions& options,
                     LoadedStep& step, std::size_t m) {
  LoadedMicrobatch& microbatch = step.microbatches[m];
  microbatch.samples = microbatch_samples(stream, options.share, step.batch, static_cast<std::int64_t>(m));
  for (std::size_t i = 0; i < microbatch.samples.size(); ++i) {
    read_sample(data, microbatch.samples[i], stream.seq_len(), row_of(microbatch.batch.tokens, i, stream.seq_len()),
                row_of(microbatch.batch.targets, i, stream.seq_len()));
  }
}

void check_options(const SampleStream& stream, const LoaderOptions& options) {
  const BatchShare& share = options.share;
  FEM_CHECK(share.micro > 0 && share.microbatches > 0 && share.dp_rank >= 0 && share.dp_rank < share.dp,
            "micro " + std::to_string(share.micro) + ", microbatches " + std::to_string(share.microbatches) +
                ", dp rank " + std::to_string(share.dp_rank) + " of " + std::to_string(share.dp));
  const std::int64_t product = share.dp * share.microbatches * share.micro;
  if (product != stream.global_batch()) {
    throw ExecutionError("dp " + std::to_string(share.dp) + " x microbatches " + std::to_string(share.microbatches) +
                         " x micro " + std::to_string(share.micro) + " = " + std::to_string(product) +
                         " samples, but the global batch has " + std::to_string(stream.global_batch()));
  }
}

}  // namespace

std::uint64_t samples_digest(const LoadedStep& step) {
  std::uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a over whole ids
  const auto add = [&digest](std::int64_t value) {
    digest = (digest ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u;
  };
  add(step.batch);
  for (const LoadedMicrobatch& microbatch : step.microbatches) {
    for (const std::int64_t sample : microbatch.samples) add(sample);
  }
  return digest;
}

LoadedStep load_step(const IndexedDataset& data, const SampleStream& stream, const LoaderOptions& options,
                     std::int64_t batch) {
  check_options(stream, options);
  LoadedStep step = allocate_step(stream, options);
  step.batch = batch;
  for (std::size_t m = 0; m < step.microbatches.size(); ++m) fill_microbatch(data, stream, options, step, m);
  return step;
}

// A ring of ahead + 1 steps: one lies with the consumer, the others are ready or being filled.
struct Loader::Impl {
  Impl(std::shared_ptr<const IndexedDataset> data_, const SampleStream& stream_, const LoaderOptions& options_,
       std::int64_t first_batch_)
      : data(std::move(data_)), stream(stream_), options(options_), first_batch(first_batch_) {
    for (int i = 0; i <= options.ahead; ++i) ring.push_back(allocate_step(stream, options));
    thread = std::thread([this] { load(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }

  LoadedStep& slot(std::int64_t step) { return ring[static_cast<std::size_t>(step) % ring.size()]; }

  bool stopped() {
    const std::lock_guard lock(mutex);
    return stop;
  }

  // The thread. It touches slot(loaded) alone, which the consumer does not own before `loaded` grows.
  void load() {
    try {
      for (std::int64_t next = 0;; ++next) {
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return stop || next - taken < options.ahead; });
          if (stop) return;
        }
        LoadedStep& step = slot(next);
        step.batch = first_batch + next;
        for (std::size_t m = 0; m < step.microbatches.size(); ++m) {
          if (stopped()) return;
          fill_microbatch(*data, stream, options, step, m);
        }
        const std::lock_guard lock(mutex);
        loaded = next + 1;
        changed.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      changed.notify_all();
    }
  }

  const std::shared_ptr<const IndexedDataset> data;
  const SampleStream stream;
  const LoaderOptions options;
  const std::int64_t first_batch;
  std::vector<LoadedStep> ring;

  std::mutex mutex;  // guards what follows, up to the thread
  std::condition_variable changed;
  std::int64_t loaded = 0, taken = 0;  // steps since the start
  bool stop = false;
  std::exception_ptr error;
  std::chrono::steady_clock::duration waited{0};
  std::thread thread;  // last: starts when everything else stands
};

Loader::Loader(std::shared_ptr<const IndexedDataset> data, const SampleStream& stream, const LoaderOptions& options,
               std::int64_t consumed) {
  check_options(stream, options);
  FEM_CHECK(options.ahead >= 1, "steps to load ahead: " + std::to_string(options.ahead));
  if (consumed < 0 || consumed % stream.global_batch() != 0) {
    throw ExecutionError("position " + std::to_string(consumed) +
                         " in the data is not a multiple of the global batch " + std::to_string(stream.global_batch()));
  }
  impl_ = std::make_unique<Impl>(std::move(data), stream, options, consumed / stream.global_batch());
}

Loader::~Loader() = default;

const LoadedStep& Loader::next() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->loaded > impl_->taken || impl_->error; });
  impl_->waited += std::chrono::steady_clock::now() - start;
  if (impl_->loaded == impl_->taken) std::rethrow_exception(impl_->error);
  const LoadedStep& step = impl_->slot(impl_->taken++);
  impl_->changed.notify_all();
  return step;
}

double Loader::waited_seconds() const {
  const std::lock_guard lock(impl_->mutex);
  return std::chrono::duration<double>(impl_->waited).count();
}

}  // namespace fem::exec
