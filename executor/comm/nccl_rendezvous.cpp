#include "executor/comm/nccl_rendezvous.hpp"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <vector>

#include "executor/error.hpp"

namespace fem::exec {

struct Rendezvous::Store {
  Store(const std::string& host, const c10d::TCPStoreOptions& options) : tcp(host, options) {}
  c10d::TCPStore tcp;
};

namespace {

std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// The first line: c10's messages go on with a stack.
std::string first_line(const std::exception& error) {
  const std::string what = error.what();
  return what.substr(0, what.find('\n'));
}

}  // namespace

Rendezvous::Rendezvous(const LaunchEnvironment& launch, std::chrono::milliseconds timeout)
    : prefix_("femtotron/" + std::to_string(launch.restart_count) + "/"), rank_(launch.rank) {
  const std::string host = launch.master_address.empty() ? "127.0.0.1" : launch.master_address;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(launch.master_port);
  options.isServer = launch.rank == 0 && !launch.agent_store;
  options.waitWorkers = false;  // meet() waits, and knows who is missing
  options.timeout = timeout;
  try {
    store_ = std::make_unique<Store>(host, options);
    meet(launch, timeout);
  } catch (const ExecutionError&) {
    throw;
  } catch (const std::exception& error) {
    throw ExecutionError("no rendezvous at " + host + ":" + std::to_string(launch.master_port) + ": " +
                             first_line(error),
                         launch.rank);
  }
}

Rendezvous::~Rendezvous() = default;

std::string Rendezvous::key(const std::string& name) const { return prefix_ + name; }

void Rendezvous::meet(const LaunchEnvironment& launch, std::chrono::milliseconds timeout) {
  store_->tcp.set(key("rank/" + std::to_string(rank_)), {1});
  std::vector<std::string> all;
  for (int rank = 0; rank < launch.world_size; ++rank) all.push_back(key("rank/" + std::to_string(rank)));
  try {
    store_->tcp.wait(all, timeout);
  } catch (const std::exception& error) {
    std::string missing;
    for (int rank = 0; rank < launch.world_size; ++rank)
      if (!store_->tcp.check({all[static_cast<std::size_t>(rank)]}))
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    throw ExecutionError("rendezvous: no sign of rank " + (missing.empty() ? first_line(error) : missing), rank_);
  }
}

std::string Rendezvous::share(const std::string& name, const std::string& value_of_rank_0) {
  try {
    if (rank_ == 0) {
      store_->tcp.set(key(name), bytes(value_of_rank_0));
      return value_of_rank_0;
    }
    return text(store_->tcp.get(key(name)));
  } catch (const std::exception& error) {
    throw ExecutionError("rendezvous: no '" + name + "' from rank 0: " + first_line(error), rank_);
  }
}

void Rendezvous::announce_failure(const std::string& reason) noexcept {
  try {
    store_->tcp.compareSet(key("failure"), {}, bytes(reason));
  } catch (const std::exception&) {
    // Rank 0, which hosts the store, is gone: the others see that themselves.
  }
}

std::string Rendezvous::failure() noexcept {
  try {
    if (!store_->tcp.check({key("failure")})) return {};
    return text(store_->tcp.get(key("failure")));
  } catch (const std::exception& error) {
    return "the store of rank 0 is gone: " + first_line(error);
  }
}

}  // namespace fem::exec
