#include "executor/world.hpp"

#include <exception>
#include <mutex>
#include <thread>

#include "executor/error.hpp"
#include "executor/rank_thread.hpp"

namespace fem::exec {
namespace {

// The error that came first in time: those after it are its consequences on other ranks.
class FirstError {
 public:
  void record(std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

void guarded(Communicator& comm, const std::function<void(Communicator&)>& rank_main, FirstError& first) {
  const RankThread thread;
  try {
    rank_main(comm);
  } catch (const std::exception& error) {
    first.record(std::current_exception());
    comm.fail(error.what());
  } catch (...) {
    first.record(std::current_exception());
    comm.fail("unknown error");
  }
}

}  // namespace

void run_ranks(World& world, const std::function<void(Communicator&)>& rank_main) {
  FirstError first;
  if (world.size() == 1) {
    guarded(*world[0], rank_main, first);
  } else {
    std::vector<std::jthread> threads;
    for (auto& comm : world) threads.emplace_back([&] { guarded(*comm, rank_main, first); });
  }
  first.rethrow();
}

RunSummary run_world(World& world, const ir::Plan& plan, const RunInputs& inputs, const RunOptions& options) {
  std::vector<RunSummary> summaries(world.size());
  run_ranks(world, [&](Communicator& comm) {
    const auto index = world.size() == 1 ? std::size_t{0} : static_cast<std::size_t>(comm.rank());
    Trainer trainer(plan, inputs, options, comm);
    summaries[index] = trainer.run();
  });
  const RunSummary& summary = summaries[0];
  if (summary.failure.empty()) return summary;
  // Every rank knows: the first says it.
  const int rank = world[0]->rank();
  if (rank != 0) throw ExecutionError("stopped because the run was given up", rank, summary.steps);
  throw ExecutionError(summary.failure, -1, summary.steps);
}

RunSummary run_world_local(const ir::Plan& plan, const RunOptions& options, const CommOptions& comm) {
  const RunInputs inputs = open_inputs(plan, options, true);
  World world = make_world(Backend::local, Topology(plan), {}, comm);
  return run_world(world, plan, inputs, options);
}

}  // namespace fem::exec
