#include "executor/comm/mpi_communicator.hpp"

#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "executor/comm/checks.hpp"
#include "executor/comm/mpi_control.hpp"
#include "executor/comm/mpi_exchange.hpp"
#include "executor/comm/mpi_groups.hpp"
#include "executor/comm/mpi_support.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

// How long a failed process waits for the others to hear of it before it ends them.
constexpr std::chrono::milliseconds kGrace{1000};
// And then, for the others to say what they heard, before it ends them.
constexpr std::chrono::milliseconds kLastWords{200};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(const Topology& topology, const CommOptions& options)
      : topology_(topology), options_(options), rank_(checked_rank(topology)), world_(own_world()), control_(world_),
        groups_(world_, topology, rank_) {
    for (MpiExchange& exchange : exchanges_) exchange.open(world_);
  }
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return topology_.size(); }
  int group_size(ir::Group group) const override { return static_cast<int>(groups_[group].ranks.size()); }
  int group_rank(ir::Group group) const override { return groups_[group].member; }

  void exchange(std::span<const P2pHalf> halves, ir::Lane lane) override;
  void all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override;
  void all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override;
  void broadcast(ir::Group group, int root, void* data, std::size_t bytes, ir::Lane lane) override;
  void barrier(ir::Group group) override;
  void fail(const std::string& reason) noexcept override { control_.announce(reason); }

 private:
  static int checked_rank(const Topology& topology);
  static MPI_Comm own_world();
  void finish(MPI_Request request, const Operation& operation, ir::Lane lane);
  template <class Text>
  void check_alive(ir::Lane lane, const Text& call);
  void check_alive(ir::Lane lane, const Operation& operation);
  [[noreturn]] void raise(const std::string& message, ir::Lane lane);
  [[noreturn]] void abandon(const std::string& message, ir::Lane lane);
  ExecutionError located(const std::string& message, ir::Lane lane);

  MpiRuntime runtime_;
  Topology topology_;
  CommOptions options_;
  int rank_;
  MPI_Comm world_;
  MpiControl control_;
  MpiGroups groups_;
  std::array<MpiExchange, ir::kLanes> exchanges_;
};

int MpiCommunicator::checked_rank(const Topology& topology) {
  int size = 0, rank = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  if (size != topology.size())
    throw ExecutionError("MPI started " + std::to_string(size) + " ranks, but the mesh has " +
                         std::to_string(topology.size()));
  return rank;
}

MPI_Comm MpiCommunicator::own_world() {
  MPI_Comm world;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return world;
}

MpiCommunicator::~MpiCommunicator() {
  if (control_.failed()) {
    std::fprintf(stderr, "femrun: rank %d ends: %s\n", rank_, control_.failure().c_str());
    std::fflush(nullptr);
    control_.announce("it ends after the failure of another rank");
    control_.linger(kGrace);
    std::this_thread::sleep_for(kLastWords);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  for (MpiExchange& exchange : exchanges_) exchange.close();
  groups_.close();
  control_.close();
  MPI_Comm_free(&world_);
}

ExecutionError MpiCommunicator::located(const std::string& message, ir::Lane lane) {
  return ExecutionError(message, rank_, progress().step(lane), progress().action(lane), topology_.place(rank_));
}

// Every error ends the world: the others hear of it before the caller does.
void MpiCommunicator::raise(const std::string& message, ir::Lane lane) {
  const ExecutionError error = located(message, lane);
  control_.announce(error.what());
  throw error;
}

// The same from a call whose requests are still under way. MPI cannot take back a collective, and moves data whenever
// this process looks for news: so it stays until the others are through, while the caller's memory is there, and looks
// no more after that.
void MpiCommunicator::abandon(const std::string& message, ir::Lane lane) {
  const ExecutionError error = located(message, lane);
  control_.announce(error.what());
  control_.linger(kGrace);
  throw error;
}

// Looks for a failure before a call starts; `call` makes its text.
template <class Text>
void MpiCommunicator::check_alive(ir::Lane lane, const Text& call) {
  control_.poll();
  if (control_.failed()) raise("stopped because " + control_.failure() + "; was about to " + call(), lane);
}

void MpiCommunicator::check_alive(ir::Lane lane, const Operation& operation) {
  check_alive(lane, [&] { return "start " + text(operation); });
}

void MpiCommunicator::exchange(std::span<const P2pHalf> halves, ir::Lane lane) {
  if (halves.empty()) return;
  check_halves(*this, halves);
  check_alive(lane, [&] { return text(halves); });
  MpiExchange& exchange = exchanges_[channel_of(lane)];
  MpiWait result;
  try {
    exchange.start(halves);
    result = mpi_wait(control_, options_.timeout, [&] { return exchange.progress(); });
  } catch (const ExecutionError& error) {
    exchange.cancel();
    abandon(error.message(), lane);
  }
  if (result == MpiWait::done) return;
  exchange.cancel();
  const std::string waiting = "waiting to " + exchange.unfinished();
  if (result == MpiWait::timed_out) abandon("no answer for " + text(options_.timeout) + ": " + waiting, lane);
  abandon("stopped because " + control_.failure() + "; was " + waiting, lane);
}

void MpiCommunicator::finish(MPI_Request request, const Operation& operation, ir::Lane lane) {
  const MpiWait result = mpi_wait(control_, options_.timeout, [&] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
  if (result == MpiWait::done) return;
  const std::string what = text(operation) + " of ranks " + text(std::span<const int>(groups_[operation.group].ranks));
  if (result == MpiWait::timed_out)
    abandon("no answer for " + text(options_.timeout) + " in " + what, lane);
  abandon("stopped because " + control_.failure() + "; was in " + what, lane);
}

void MpiCommunicator::all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) {
  const Operation operation{.kind = OperationKind::all_gather, .group = group, .bytes = bytes};
  check_alive(lane, operation);
  const MpiGroup& own = groups_[group];
  void* own_block = static_cast<char*>(recv) + static_cast<std::size_t>(own.member) * bytes;
  if (own.ranks.size() == 1) {
    if (own_block != send && bytes != 0) std::memcpy(own_block, send, bytes);
    return;
  }
  const MpiBytes block(bytes);
  MPI_Request request;
  check_mpi(MPI_Iallgather(own_block == send ? MPI_IN_PLACE : send, block.count(), block.type(), recv, block.count(),
                           block.type(), own.comms[channel_of(lane)], &request),
            "MPI_Iallgather");
  finish(request, operation, lane);
}

void MpiCommunicator::all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) {
  const Operation operation{.kind = OperationKind::all_to_all, .group = group, .bytes = bytes};
  check_alive(lane, operation);
  const MpiGroup& own = groups_[group];
  if (own.ranks.size() == 1) {
    if (bytes != 0) std::memcpy(recv, send, bytes);
    return;
  }
  const MpiBytes block(bytes);
  MPI_Request request;
  check_mpi(MPI_Ialltoall(send, block.count(), block.type(), recv, block.count(), block.type(),
                          own.comms[channel_of(lane)], &request),
            "MPI_Ialltoall");
  finish(request, operation, lane);
}

void MpiCommunicator::broadcast(ir::Group group, int root, void* data, std::size_t bytes, ir::Lane lane) {
  check_root(*this, group, root);
  const Operation operation{.kind = OperationKind::broadcast, .group = group, .peer = root, .bytes = bytes};
  check_alive(lane, operation);
  const MpiGroup& own = groups_[group];
  if (own.ranks.size() == 1) return;
  const MpiBytes block(bytes);
  MPI_Request request;
  check_mpi(MPI_Ibcast(data, block.count(), block.type(), root, own.comms[channel_of(lane)], &request), "MPI_Ibcast");
  finish(request, operation, lane);
}

void MpiCommunicator::barrier(ir::Group group) {
  const Operation operation{.kind = OperationKind::barrier, .group = group};
  check_alive(ir::Lane::Compute, operation);
  const MpiGroup& own = groups_[group];
  if (own.ranks.size() == 1) return;
  MPI_Request request;
  check_mpi(MPI_Ibarrier(own.comms[kBarrierChannel], &request), "MPI_Ibarrier");
  finish(request, operation, ir::Lane::Compute);
}

}  // namespace

MpiRuntime::MpiRuntime() {
  int initialized = 0, finalized = 0, provided = 0;
  MPI_Finalized(&finalized);
  if (finalized) throw ExecutionError("MPI was finalized in this process already and cannot be started again");
  MPI_Initialized(&initialized);
  if (initialized) {
    check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owner_ = true;
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    if (owner_) MPI_Finalize();
    throw ExecutionError("this MPI grants thread level " + std::to_string(provided) +
                         ", but lanes need MPI_THREAD_MULTIPLE");
  }
}

MpiRuntime::~MpiRuntime() {
  if (owner_) MPI_Finalize();
}

std::unique_ptr<Communicator> make_mpi_communicator(const Topology& topology, const CommOptions& options) {
  return std::make_unique<MpiCommunicator>(topology, options);
}

}  // namespace fem::exec
